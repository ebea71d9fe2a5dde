"""Columns at the iceberg sink: what rows look like to a table, and which field ids a new table's columns get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.protocols import NUMBER
from airflow_provider_ckpt.connectors.two_phase.column_types import differences, misfit_error, plain, storable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

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


def evolved(table: Table, schema: pa.Schema | Schema | None, *, grows: bool) -> Schema:
    """The table's columns, and those that it gets from rows: all of them if it has none yet.

    The same columns get the same field ids, whoever asks, so that lanes can write files before the commit.

    :param schema: of the rows
    :param grows: whether a table that has columns gets more
    """
    transaction = table.transaction()
    evolve(transaction, table.schema(), schema, grows=grows)
    return transaction.table_metadata.schema()


def evolve(transaction: Transaction, has: Schema, schema: pa.Schema | Schema | None, *, grows: bool) -> None:
    """Add the new columns in a transaction; see :func:`evolved`."""
    import pyarrow as pa
    from pyiceberg.schema import Schema

    if schema is None or (has.fields and not grows):
        return
    known = {field.name for field in has.fields}
    if isinstance(schema, Schema):
        new: pa.Schema | Schema = Schema(*(field for field in schema.fields if field.name not in known))
    else:
        new = pa.schema([field for field in schema if field.name not in known])
    with transaction.update_schema() as update:
        update.union_by_name(new)


def refuse_misfit(where: str, has: Schema, gets: pa.Schema, *, grows: bool) -> None:
    """Fail if rows do not fit the columns of a table.

    :param grows: whether rows may have other columns, and be without those that may be null
    :raises ConfigError: naming them
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    optional = [field.name for field in has.fields if not field.required] if grows else []
    problems = differences(_types(schema_to_pyarrow(has)), _types(gets), may_lack=optional, may_add=grows)
    if problems:
        raise misfit_error(f"the Iceberg table {where}", problems)


def complete(rows: pa.Table, schema: Schema) -> pa.Table:
    """The rows with all columns of a table, in its order; those that they are without are null."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    for field in schema_to_pyarrow(schema):
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, plain(field.type)))
    return rows.select([field.name for field in schema.fields])


def without_number(schema: pa.Schema) -> pa.Schema:
    """The columns alone."""
    return schema.remove(schema.get_field_index(NUMBER))


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
