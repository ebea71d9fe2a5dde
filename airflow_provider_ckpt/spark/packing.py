"""The source's columns of a record on their way around the transform, for the dead letter of one that is rejected.

Raw records are packed into one text: Spark does some work for every part of a column of every record, rejected or not.
Rows stay what they are, since their values may be of types that a text cannot hold without loss.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.spark.sql import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.protocols import Shape

_TIME = "timestamp"


def packed(shape: Shape, column: Callable[[str], str]) -> str:
    """SQL of a record's source columns.

    :param column: SQL of the one of a name
    """
    if not shape.raw:
        return f"struct({', '.join(f'{column(name)} AS {quote(name)}' for name, _ in shape.columns)})"
    values = [
        f"{f'unix_micros({column(name)})' if name == _TIME else column(name)} AS {name}" for name, _ in shape.columns
    ]
    return f"to_json(struct({', '.join(values)}))"


def nothing(shape: Shape) -> str:
    """SQL of what stands for no original.

    Where rows have lists, they are there and empty: Spark's Arrow writer walks over all null lists of a batch again for
    every further row of it.
    """
    empty = {"array": "array()", "map": "map()"}
    kinds = [kind.partition("<")[0].lower() for _, kind in shape.columns]
    if shape.raw or not empty.keys() & set(kinds):
        return "NULL"
    columns = [
        f"CAST({empty.get(short, 'NULL')} AS {kind}) AS {quote(name)}"
        for short, (name, kind) in zip(kinds, shape.columns, strict=True)
    ]
    return f"struct({', '.join(columns)})"


def unpacked(original: pa.Array, shape: Shape) -> pa.StructArray:
    """The source's columns of rejected records.

    :param original: :data:`~.columns.ORIGINAL`, no null
    """
    import pyarrow as pa

    if not shape.raw:
        return original
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kinds = {"headers": pa.list_(header), _TIME: pa.timestamp("us", "UTC")}
    records = [_record(json.loads(text)) for text in original.to_pylist()]
    return pa.array(records, pa.struct([(name, kinds.get(name, pa.binary())) for name, _ in shape.columns]))


def _record(packed: dict[str, Any]) -> dict[str, Any]:
    return {name: _unpack[name](value) if name in _unpack else _bytes(value) for name, value in packed.items()}


def _headers(packed: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [{"key": header.get("key"), "value": _bytes(header.get("value"))} for header in packed]


def _bytes(encoded: str | None) -> bytes | None:
    return None if encoded is None else base64.b64decode(encoded)


_unpack: dict[str, Callable[[Any], Any]] = {"headers": _headers, _TIME: int}
