"""Convert rows to types that Delta supports, and compare the rows' columns with a table's."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import record_error
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.two_phase.column_changes import ColumnRules, TableColumn, needed_changes
from airflow_provider_ckpt.connectors.two_phase.column_types import differences, to_storable
from airflow_provider_ckpt.connectors.two_phase.type_widening import is_wider
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from deltalake import DeltaTable, Field

    from airflow_provider_ckpt.core.next_schema_version import TargetStep

_NAMES_OF_SPARK_TYPES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
"""Delta's names of column types, by Spark SQL's names of the same types; only those that differ."""

_DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of a column's metadata in which Spark keeps the type of a ``char`` or ``varchar`` column, a string to Delta."""

_LIMITED = re.compile(r"(?:var)?char\((\d+)\)", re.IGNORECASE)
_TOO_LONG = "22001"

_NO_WIDENING = "the Delta library does not widen a column's type (table feature typeWidening)"
_NO_RENAME = "the Delta library does not rename columns (table feature columnMapping)"


def to_delta(rows: pa.Table) -> pa.Table:
    """Return rows whose columns are converted to types that a Delta table can store.

    :param rows: the rows
    :raises ConfigError: naming the columns whose type Delta does not support
    """
    return to_storable(rows, "a Delta table")


def misfits(table: DeltaTable, schema: pa.Schema, *, may_lack: bool = False, may_add: bool = False) -> list[str]:
    """Return the differences between a table's columns and those of rows, such as ``a is not in the table (long)``.

    :param table: the table
    :param schema: columns of the rows
    :param may_lack: whether the rows may lack nullable columns of the table; then these are no differences
    :param may_add: whether the rows may have columns that the table does not have; then these are no differences
    """
    from deltalake import Schema

    nullable = [field.name for field in table.schema().fields if field.nullable] if may_lack else []
    return differences(_types(table.schema()), _types(Schema.from_arrow(schema)), may_lack=nullable, may_add=may_add)


def widen_rows(rows: pa.Table, table: DeltaTable) -> pa.Table:
    """Return rows with the table's type in each column whose own type is narrower.

    :param rows: the rows, as :func:`to_delta` returned them
    :param table: the table
    """
    import pyarrow as pa
    from deltalake import Schema

    wanted, types = _types(table.schema()), _types(Schema.from_arrow(rows.schema))
    schema = pa.schema(table.schema().to_arrow())
    for index, name in enumerate(rows.column_names):
        if name in wanted and is_wider(types[name], wanted[name]):
            rows = rows.set_column(index, name, rows.column(name).cast(schema.field(name).type))
    return rows


def length_errors(rows: pa.Table, table: DeltaTable) -> dict[int, ErrorInfo]:
    """Return the errors of texts that are longer than Spark lets the table's columns be, by row number.

    Delta itself has no such limit; writers have to keep it.

    :param rows: rows with their numbers, as :func:`to_delta` returned them
    :param table: the table
    """
    import pyarrow.compute as pc

    errors: dict[int, ErrorInfo] = {}
    for field in table.schema().fields:
        declared = str((field.metadata or {}).get(_DECLARED_TYPE, ""))
        limit = _LIMITED.fullmatch(declared)
        if limit is None or field.name not in rows.column_names:
            continue
        too_long = pc.greater(pc.utf8_length(rows.column(field.name)), int(limit[1]))
        message = f"column {field.name} is a text of more than {limit[1]} characters, and the table declares {declared}"
        for number in rows.column(ROW_NUMBER).filter(too_long).to_pylist():
            errors[number] = record_error(ErrorType.SINK, message, _TOO_LONG)
    return errors


def changes_for(table: DeltaTable, where: str, steps: Sequence[TargetStep], pipeline: str) -> Sequence[TargetStep]:
    """Return those changes of columns that a table has not made yet; see :func:`.column_changes.needed_changes`.

    :param table: the table
    :param where: the table, as in ``the Delta table /data/t``
    :param steps: the changes of the target that a schema version requires
    :param pipeline: name of the pipeline, for messages
    :raises ConfigError: if the table cannot make a change without loss
    """
    types = _types(table.schema())
    columns = {field.name: TableColumn(types[field.name], not field.nullable) for field in table.schema().fields}
    rules = ColumnRules(where, pipeline, _type_of_spark_type, lambda *_: _NO_WIDENING, _NO_RENAME)
    return needed_changes(columns, steps, rules)


def field_of_type(name: str, kind: str) -> Field:
    """Return a nullable column for a Delta table.

    :param name: name of the column
    :param kind: name of a primitive Delta type, such as ``long``
    """
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    return Field(name, PrimitiveType(kind), nullable=True)


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


def _type_of_spark_type(spark: str) -> str:
    """Return the name of the Delta type in which values of a Spark SQL type are stored.

    :param spark: the Spark SQL type; one that Delta calls by the same name is returned unchanged
    """
    return _NAMES_OF_SPARK_TYPES.get(spark, spark)


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
