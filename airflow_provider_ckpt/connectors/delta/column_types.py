"""Types at the delta sink: what Delta can hold, in the form it wants, and whether rows fit a table's columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def for_delta(rows: pa.Table) -> pa.Table:
    """The rows as Delta wants them: every column nullable, instants in microseconds of UTC.

    :raises ConfigError: naming the columns whose type Delta does not have
    """
    import pyarrow as pa

    schema = pa.schema([pa.field(field.name, _wanted(field.type)) for field in rows.schema])
    refused = [f"{field.name} is {field.type}" for field in schema if not _known(field.type)]
    if refused:
        raise ConfigError(
            f"a Delta table cannot hold these columns: {'; '.join(refused)}.",
            hint="Cast them in transform.select, for example to string.",
        )
    return rows if rows.schema.equals(schema, check_metadata=True) else rows.cast(schema)


def misfits(table: DeltaTable, schema: pa.Schema) -> list[str]:
    """How rows of a schema do not fit the table, column by column; empty if they do."""
    from deltalake import Schema

    has, gets = _types(table.schema()), _types(Schema.from_arrow(schema))
    problems = [f"{name} is missing ({has[name]})" for name in has if name not in gets]
    problems += [f"{name} is not in the table ({gets[name]})" for name in gets if name not in has]
    problems += [
        f"{name} is {gets[name]}, the table's is {has[name]}"
        for name in gets
        if has.get(name, gets[name]) != gets[name]
    ]
    return problems


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as JSON can carry it; :func:`schema_of` is its inverse."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_of(text: str) -> pa.Schema:
    """The schema that :func:`schema_text` wrote down."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def misfit_error(path: Path, problems: Sequence[str]) -> ConfigError:
    """What to raise or report when rows do not fit."""
    return ConfigError(
        f"the rows do not fit the Delta table {path}: {'; '.join(problems)}.",
        hint="Correct transform.select, or write to a new table.",
    )


def _wanted(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_wanted(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _wanted(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_wanted(kind.key_type), _wanted(kind.item_type))
    return kind


def _known(kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_ = pa.types
    if is_.is_list(kind):
        return _known(kind.value_type)
    if is_.is_struct(kind):
        return kind.num_fields > 0 and all(_known(field.type) for field in kind)
    if is_.is_map(kind):
        return _known(kind.key_type) and _known(kind.item_type)
    simple = (
        is_.is_boolean, is_.is_signed_integer, is_.is_float32, is_.is_float64, is_.is_decimal128, is_.is_date32,
        is_.is_timestamp, is_.is_string, is_.is_large_string, is_.is_binary, is_.is_large_binary,
    )  # fmt: skip
    return any(test(kind) for test in simple)


def _types(schema: Any) -> dict[str, str]:
    fields = json.loads(schema.to_json())["fields"]
    return {field["name"]: _type(field["type"]) for field in fields}


def _type(kind: Any) -> str:
    """A Delta type without what readers may differ in: nullability and metadata."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            return "struct<" + ", ".join(f"{f['name']}: {_type(f['type'])}" for f in kind["fields"]) + ">"
        case "array":
            return f"array<{_type(kind['elementType'])}>"
        case _:
            return f"map<{_type(kind['keyType'])}, {_type(kind['valueType'])}>"
