"""Change the columns of a table of MySQL or MariaDB by one ALTER TABLE, which the server executes atomically.

A column that changes keeps the other parts of its definition (character set, default, comment, checks), which are
copied from ``SHOW CREATE TABLE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sql.column_changes import ColumnChange
from airflow_provider_ckpt.connectors.sql.columns import Column, Kind, Table
from airflow_provider_ckpt.connectors.sql.mysql_locks import limit_ddl_wait
from airflow_provider_ckpt.connectors.sql.mysql_table import quote

if TYPE_CHECKING:
    import sqlalchemy as sa

_LOCK_SECONDS = 2
_MAX_VARCHAR = 1024
"""Longest ``varchar``, in characters; longer texts get a type that adds little to the length of a row."""

_MAX_DIGITS, _MAX_SCALE = 65, 30
_TYPES: Mapping[Kind, str] = {
    Kind.BOOLEAN: "tinyint(1)",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.BINARY: "longblob",
    Kind.DATE: "date",
    Kind.DATETIME: "datetime(6)",
    Kind.TIMESTAMP: "datetime(6)",
}
_INTEGERS = {7: "tinyint", 15: "smallint", 31: "int", 63: "bigint"}
_DEFINITION = re.compile(r"  `((?:[^`]|``)+)` (.+)", re.DOTALL)
"""Line of ``SHOW CREATE TABLE`` that defines a column: its name and the rest."""

_COLLATION = "SELECT table_collation FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


def column_for(values: Column) -> Column:
    """Return the column that a table gets for values of a source; its ``type_text`` is the type in SQL.

    :param values: a description of the values, see :func:`.column_changes.source_values`
    """
    if values.kind is Kind.INTEGER:
        return replace(values, type_text=_INTEGERS[values.high.bit_length()])
    if values.kind is Kind.DECIMAL and values.precision is not None:
        digits, scale = values.precision, values.scale
        if digits <= _MAX_DIGITS and 0 <= scale <= min(digits, _MAX_SCALE):
            return replace(values, type_text=f"decimal({digits},{scale})")
    if values.kind in (Kind.TEXT, Kind.DECIMAL):
        short = values.kind is Kind.TEXT and values.length is not None and values.length <= _MAX_VARCHAR
        type_text = f"varchar({values.length})" if short else "longtext"
        return Column(values.name, Kind.TEXT, type_text, length=values.length if short else None)
    kind = Kind.DATETIME if values.kind is Kind.TIMESTAMP else values.kind
    return replace(values, kind=kind, type_text=_TYPES[values.kind])


def alter_columns(connection: sa.Connection, table: Table, changes: Sequence[ColumnChange]) -> None:
    """Change columns by one statement, which commits the open transaction.

    :param connection: an open connection
    :param table: the table
    :param changes: the changes
    """
    limit_ddl_wait(connection)
    place = f"{quote(table.schema)}.{quote(table.name)}"
    definitions = _definitions(connection, place)
    collation = str(connection.exec_driver_sql(_COLLATION, (table.schema, table.name)).scalar_one())
    charset = "" if collation.startswith("utf8mb4") else " CHARACTER SET utf8mb4"
    actions = ", ".join(_action(change, definitions, charset) for change in changes)
    connection.exec_driver_sql(f"ALTER TABLE {place} {actions}".replace("%", "%%"))


def lock_columns(connection: sa.Connection, mark: str) -> bool:
    """Take the named lock of a target's columns for the rest of the session; return False if another session has it.

    :param connection: the session
    :param mark: text that identifies the pipeline
    """
    return bool(connection.exec_driver_sql(f"SELECT GET_LOCK('ckpt:{mark}:columns', {_LOCK_SECONDS})").scalar() == 1)


def end_column_change(connection: sa.Connection, mark: str) -> None:
    """Kill the session that has the named lock of a target's columns; a session of another user is left.

    :param connection: session that kills the other
    :param mark: text that :func:`lock_columns` was given
    """
    from sqlalchemy.exc import DBAPIError

    session = connection.exec_driver_sql(f"SELECT IS_USED_LOCK('ckpt:{mark}:columns')").scalar()
    if session is None:
        return
    try:
        connection.exec_driver_sql(f"KILL {int(session):d}")
    except DBAPIError as error:  # the session has ended, or is another user's; the caller goes on waiting
        if error.connection_invalidated:
            raise


def _action(change: ColumnChange, definitions: Mapping[str, str], charset: str) -> str:
    """Return the action of ALTER TABLE that makes a change.

    :param change: the change
    :param definitions: the columns' definitions by name, each beginning with the column's type
    :param charset: clause with the character set of new columns of texts; empty if it is the table's
    """
    after, before = change.after, change.before
    if before is None:
        return f"ADD COLUMN {quote(after.name)} {after.type_text}{charset if after.kind is Kind.TEXT else ''} NULL"
    if not change.changes_type and not change.allows_null:
        return f"RENAME COLUMN {quote(before.name)} TO {quote(after.name)}"
    rest = definitions[before.name].removeprefix(before.type_text)
    if change.allows_null:
        rest = rest.replace(" NOT NULL", " NULL", 1)
    return f"CHANGE COLUMN {quote(before.name)} {quote(after.name)} {after.type_text}{rest}"


def _definitions(connection: sa.Connection, place: str) -> dict[str, str]:
    """Return the definitions of a table's columns by name, without their names.

    :param connection: an open connection
    :param place: the table in SQL
    """
    connection.exec_driver_sql("SET SESSION sql_quote_show_create = 1")
    shown = str(connection.exec_driver_sql(f"SHOW CREATE TABLE {place}".replace("%", "%%")).one()[1])
    found: dict[str, str] = {}
    for line in shown.split("\n"):
        column = _DEFINITION.fullmatch(line)
        if column is not None:
            found.setdefault(column[1].replace("``", "`"), column[2].removesuffix(","))
    return found
