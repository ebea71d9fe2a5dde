"""Change the columns of a SQLite table in the open transaction: add and rename columns; types cannot be changed.

A column of SQLite stores more than other databases' columns do: each integer of 64 bits, each double. So most wider
types of a source need no change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sql.column_changes import ColumnChange
from airflow_provider_ckpt.connectors.sql.columns import Column, Kind, Table
from airflow_provider_ckpt.connectors.sql.names import quote

if TYPE_CHECKING:
    import sqlalchemy as sa

_TYPES: Mapping[Kind, str] = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "INTEGER",
    Kind.FLOAT: "REAL",
    Kind.DOUBLE: "DOUBLE",
    Kind.BINARY: "BLOB",
    Kind.DATE: "DATE",
    Kind.DATETIME: "DATETIME",
    Kind.TIMESTAMP: "DATETIME",
}


def column_for(values: Column, digits: int) -> Column:
    """Return the column that a table gets for values of a source; its ``type_text`` is the type in SQL.

    :param values: a description of the values, see :func:`.column_changes.source_values`
    :param digits: greatest number of digits that SQLite keeps in a decimal
    """
    if values.kind is Kind.TEXT:
        return replace(values, type_text="TEXT" if values.length is None else f"VARCHAR({values.length})")
    if values.kind is Kind.DECIMAL:
        precision, scale = values.precision, values.scale
        if precision is not None and precision <= digits and 0 <= scale <= precision:
            return replace(values, type_text=f"DECIMAL({precision},{scale})")
        return Column(values.name, Kind.TEXT, "TEXT")
    kinds = {Kind.FLOAT: Kind.DOUBLE, Kind.TIMESTAMP: Kind.DATETIME}
    return replace(values, kind=kinds.get(values.kind, values.kind), type_text=_TYPES[values.kind])


def column_change_problem(table: Table, change: ColumnChange) -> tuple[str, str] | None:
    """Return the reason why SQLite cannot make a change of a column, and the remedy; None if it can.

    :param table: the table
    :param change: the change
    """
    if change.before is None or not (change.changes_type or change.allows_null):
        return None
    name, wanted = change.after.name, change.after.type_text
    remedy = "Create the table anew with this column, copy its rows, and give it the target's name; then run again."
    if change.changes_type:
        reason = f"of target {table.label} is {change.before.type_text} and has to become {wanted}"
        return f"column {name} {reason}, but SQLite cannot change the type of a column", remedy
    return f"column {name} of target {table.label} has to lose its NOT NULL, which SQLite cannot remove", remedy


def alter_columns(connection: sa.Connection, table: Table, changes: Sequence[ColumnChange]) -> None:
    """Rename and add columns in the open transaction; renames come first, since a new column may have the old name.

    :param connection: the connection with the transaction
    :param table: the table
    :param changes: the changes
    """
    place = f"{quote(table.schema)}.{quote(table.name)}"
    for change in changes:
        if change.before is not None:
            renamed = f"{quote(change.before.name)} TO {quote(change.after.name)}"
            connection.exec_driver_sql(f"ALTER TABLE {place} RENAME COLUMN {renamed}")
    for change in changes:
        if change.before is None:
            connection.exec_driver_sql(
                f"ALTER TABLE {place} ADD COLUMN {quote(change.after.name)} {change.after.type_text}"
            )
