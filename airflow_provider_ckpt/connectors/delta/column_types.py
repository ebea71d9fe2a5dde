"""Convert rows to types that Delta supports, and compare the rows' columns with a table's."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.two_phase.column_types import differences, to_storable

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def to_delta(rows: pa.Table) -> pa.Table:
    """Return rows whose columns are converted to types that a Delta table can store.

    :param rows: the rows
    :raises ConfigError: naming the columns whose type Delta does not support
    """
    return to_storable(rows, "a Delta table")


def misfits(table: DeltaTable, schema: pa.Schema, *, may_lack: bool = False, may_add: bool = False) -> list[str]:
    """Return the differences between a table's columns and those of rows, one text each, as ``a is missing (integer)``.

    :param table: the table
    :param schema: columns of the rows
    :param may_lack: whether the rows may lack nullable columns of the table; then these are no differences
    :param may_add: whether the rows may have columns that the table does not have; then these are no differences
    """
    from deltalake import Schema

    nullable = [field.name for field in table.schema().fields if field.nullable] if may_lack else []
    return differences(_types(table.schema()), _types(Schema.from_arrow(schema)), may_lack=nullable, may_add=may_add)


def encode_schema(schema: pa.Schema) -> str:
    """Encode an Arrow schema as a text that can be stored in JSON; :func:`decode_schema` is its inverse.

    :param schema: the Arrow schema
    """
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Restore an Arrow schema that :func:`encode_schema` has encoded.

    :param text: the encoded schema
    """
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _types(schema: Any) -> dict[str, str]:
    fields = json.loads(schema.to_json())["fields"]
    return {field["name"]: _type(field["type"]) for field in fields}


def _type(kind: Any) -> str:
    """Return the name of a Delta type without nullability and metadata, such as ``array<integer>``.

    :param kind: the type, as it is written in Delta's JSON schema
    """
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            return "struct<" + ", ".join(f"{f['name']}: {_type(f['type'])}" for f in kind["fields"]) + ">"
        case "array":
            return f"array<{_type(kind['elementType'])}>"
        case _:
            return f"map<{_type(kind['keyType'])}, {_type(kind['valueType'])}>"
