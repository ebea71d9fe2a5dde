"""Convert rows for an Iceberg table, compare their columns with the table's, and assign field ids to new columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.two_phase.column_changes import ColumnRules, TableColumn, needed_changes
from airflow_provider_ckpt.connectors.two_phase.column_types import (
    differences,
    misfit_error,
    normalized_type,
    to_storable,
)
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.types import IcebergType

_ICEBERG_NAMES = {
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
"""Iceberg's names of column types, by Arrow's names of the same types; only those that differ."""

_NAMES_OF_SPARK_TYPES = {
    "tinyint": "int",
    "smallint": "int",
    "bigint": "long",
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
}
"""Iceberg's names of column types, by Spark SQL's names of the same types; only those that differ."""


def to_iceberg(rows: pa.Table) -> pa.Table:
    """Return rows whose columns are converted to types that an Iceberg table can store.

    :param rows: the rows
    :raises ConfigError: naming the columns whose type Iceberg does not support
    """
    return to_storable(rows, "an Iceberg table")


def with_new_columns(table: Table, schema: pa.Schema | Schema | None, *, adds_columns: bool) -> Schema:
    """Return the table's columns, followed by those columns of the rows that it lacks; the table itself is not changed.

    A table without columns gets all columns of the rows. New columns get the field ids that the commit will give them,
    so that lanes can write files with these ids before the commit.

    :param table: the table
    :param schema: columns of the rows; None for no rows
    :param adds_columns: whether new columns may be added to a table that has columns already
    """
    transaction = table.transaction()
    add_new_columns(transaction, table.schema(), schema, adds_columns=adds_columns)
    return transaction.table_metadata.schema()


def add_new_columns(
    transaction: Transaction, table_schema: Schema, schema: pa.Schema | Schema | None, *, adds_columns: bool
) -> None:
    """Add to a table, within a transaction, the columns that rows have and the table lacks.

    A table without columns gets all columns of the rows.

    :param transaction: the transaction, which the caller commits
    :param table_schema: columns of the table
    :param schema: columns of the rows; None for no rows
    :param adds_columns: whether new columns may be added to a table that has columns already
    """
    import pyarrow as pa
    from pyiceberg.schema import Schema

    if schema is None or (table_schema.fields and not adds_columns):
        return
    known = {field.name for field in table_schema.fields}
    if isinstance(schema, Schema):
        new: pa.Schema | Schema = Schema(*(field for field in schema.fields if field.name not in known))
    else:
        new = pa.schema([field for field in schema if field.name not in known])
    with transaction.update_schema() as update:
        update.union_by_name(new)


def changes_for(table: Table, steps: Sequence[TargetStep], pipeline: str) -> Sequence[TargetStep]:
    """Return the changes of columns that a table still needs; see :func:`.column_changes.needed_changes`.

    :param table: the table
    :param steps: the changes of the target that a schema version requires
    :param pipeline: name of the pipeline, for messages
    :raises ConfigError: if the table cannot make a change without loss
    """
    columns = {field.name: TableColumn(str(field.field_type), field.required) for field in table.schema().fields}
    where = f"the Iceberg table {'.'.join(table.name())}"
    return needed_changes(columns, steps, ColumnRules(where, pipeline, _type_of_spark_type, _widening_refusal))


def change_columns(transaction: Transaction, changes: Sequence[TargetStep]) -> None:
    """Change the columns of a table within a transaction, one after the other.

    Each change makes a new schema of the table, so that it can use a name that an earlier change has made free.

    :param transaction: the transaction, which the caller commits
    :param changes: the changes, as :func:`changes_for` returned them
    """
    for change in changes:
        with transaction.update_schema() as update:
            match change.kind:
                case StepKind.ADD:
                    update.add_column((change.name,), named_type(change.type))
                case StepKind.WIDEN:
                    update.update_column((change.name,), named_type(change.type))
                case StepKind.ALLOW_NULL:
                    update.make_column_optional((change.name,))
                case StepKind.RENAME:
                    update.rename_column((change.name,), change.type)


def refuse_misfit(
    where: str, table_schema: Schema, row_schema: pa.Schema, *, adds_columns: bool, follows_schema: bool
) -> None:
    """Raise an error if the columns of rows do not fit the columns of a table.

    :param where: name of the table, for the message
    :param table_schema: columns of the table
    :param row_schema: columns of the rows
    :param adds_columns: whether the rows may have columns that the table lacks, and lack nullable columns of the table
    :param follows_schema: whether the rows are those of a schema version, which may lack nullable columns of the table
        and have narrower types
    :raises ConfigError: naming the columns
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    may_lack = adds_columns or follows_schema
    problems = differences(
        _types(schema_to_pyarrow(table_schema)),
        _types(row_schema),
        may_lack=[field.name for field in table_schema.fields if not field.required] if may_lack else [],
        may_add=adds_columns,
        may_be_narrower=follows_schema,
    )
    if problems:
        raise misfit_error(f"the Iceberg table {where}", problems)


def fill_missing_columns(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return rows with exactly the columns of a table, in the table's order; missing columns are null.

    :param rows: the rows
    :param schema: columns of the table
    """
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    for field in schema_to_pyarrow(schema):
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, normalized_type(field.type)))
    return rows.select([field.name for field in schema.fields])


def without_row_number(schema: pa.Schema) -> pa.Schema:
    """Return the columns of rows without the column of row numbers, :data:`~.sink_protocol.ROW_NUMBER`.

    :param schema: columns of the rows, which include that column
    """
    return schema.remove(schema.get_field_index(ROW_NUMBER))


def named_type(name: str) -> IcebergType:
    """Return the Iceberg type of a name, such as ``long`` or ``decimal(9, 2)``.

    :param name: the name
    """
    from pyiceberg.types import NestedField

    return NestedField(1, "value", name).field_type


def _widening_refusal(_: str, before: str, after: str) -> str | None:
    """Return the reason why Iceberg does not change a type to a wider one, for an error message; None if it does.

    The reason is another scale of a decimal type. The library would change it, but the format forbids this: readers
    would take the unscaled values of older files for values of the new scale.

    :param before: name of the column's type
    :param after: name of the wider type
    """
    from pyiceberg.types import DecimalType

    narrow, wide = named_type(before), named_type(after)
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType) and narrow.scale != wide.scale:
        return f"Iceberg does not change {before} to {after}, which has another scale"
    return None


def _type_of_spark_type(spark: str) -> str:
    """Return the name of the Iceberg type in which values of a Spark SQL type are stored.

    :param spark: the Spark SQL type
    """
    return str(named_type(_NAMES_OF_SPARK_TYPES.get(spark, spark)))


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: _type(field.type) for field in schema}


def _type(kind: pa.DataType) -> str:
    """Return the name of an Arrow type in Iceberg's notation, such as ``list<long>``.

    :param kind: the Arrow type
    """
    import pyarrow as pa

    kind = normalized_type(kind)
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {_type(field.type)}" for field in kind) + ">"
    if pa.types.is_list(kind):
        return f"list<{_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)}, {_type(kind.item_type)}>"
    text = str(kind)
    return _ICEBERG_NAMES.get(text, text.replace("decimal128", "decimal"))
