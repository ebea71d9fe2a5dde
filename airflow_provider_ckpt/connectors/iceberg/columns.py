"""Columns at the iceberg sink: what rows look like to a table, and which field ids a new table's columns get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.protocols import POSITION
from airflow_provider_ckpt.connectors.two_phase.column_types import differences, misfit_error, plain, storable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_WORDS = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "large_string": "string",
    "large_binary": "binary",
    "date32[day]": "date",
    "time64[us]": "time",
    "timestamp[us]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamptz",
}
"""Arrow's types in Iceberg's words, where they differ."""


def for_iceberg(rows: pa.Table) -> pa.Table:
    """The rows as Iceberg wants them.

    :raises ConfigError: naming the columns whose type Iceberg does not have
    """
    return storable(rows, "an Iceberg table")


def evolved(table: Table, schema: pa.Schema | Schema | None) -> Schema:
    """The table's columns, or those that it gets with the first rows, if it has none yet.

    The same columns get the same field ids, whoever asks, so that lanes can write files before the commit.

    :param schema: of the rows
    """
    if table.schema().fields or schema is None:
        return table.schema()
    transaction = table.transaction()
    with transaction.update_schema() as update:
        update.union_by_name(schema)
    return transaction.table_metadata.schema()


def refuse_misfit(where: str, has: Schema, gets: pa.Schema) -> None:
    """Fail if rows do not fit the columns of a table.

    :raises ConfigError: naming them
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    problems = differences(_types(schema_to_pyarrow(has)), _types(gets))
    if problems:
        raise misfit_error(f"the Iceberg table {where}", problems)


def without_position(schema: pa.Schema) -> pa.Schema:
    """The columns alone."""
    return schema.remove(schema.get_field_index(POSITION))


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: _type(field.type) for field in schema}


def _type(kind: pa.DataType) -> str:
    """A type in Iceberg's words."""
    import pyarrow as pa

    kind = plain(kind)
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {_type(field.type)}" for field in kind) + ">"
    if pa.types.is_list(kind):
        return f"list<{_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)}, {_type(kind.item_type)}>"
    text = str(kind)
    return _WORDS.get(text, text.replace("decimal128", "decimal"))
