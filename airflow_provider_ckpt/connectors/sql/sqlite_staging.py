"""Copy the definition of a SQLite table for a staging table, from the statements that SQLite stores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.names import quote

if TYPE_CHECKING:
    import sqlalchemy as sa

_NAME = r"""(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|'(?:[^']|'')*'|[^\s("`\[']+)"""
_TABLE = re.compile(rf"CREATE TABLE\s+{_NAME}", re.IGNORECASE)
_UNIQUE_INDEX = re.compile(rf"CREATE UNIQUE INDEX\s+{_NAME}\s+ON\s+{_NAME}", re.IGNORECASE)
_REFERRING = """
SELECT DISTINCT m.name FROM {place}.sqlite_schema m JOIN pragma_foreign_key_list(m.name, ?) f
WHERE m.type = 'table' AND lower(f."table") = lower(?) AND f.on_delete <> 'NO ACTION' ORDER BY 1
"""


def replacement_problem(connection: sa.Connection, table: Table) -> tuple[str, str] | None:
    """Return the reason why the rows of a table cannot be replaced as a whole, and the remedy; None if they can.

    :param connection: an open connection
    :param table: the target
    """
    if staging_statements(connection, table, table.name) is None:
        return f"the definition of target {table.label} cannot be copied", "Name an ordinary table."
    own = connection.exec_driver_sql("SELECT 1 FROM pragma_foreign_key_list(?, ?)", (table.name, table.schema))
    if own.first() is not None:
        return (
            f"target {table.label} has foreign keys, by which its staging table would keep others from removing rows",
            "Write to a table without foreign keys.",
        )
    query = _REFERRING.format(place=quote(table.schema))
    referring = connection.exec_driver_sql(query, (table.schema, table.name)).scalars().all()
    if referring:
        problem = (
            f"foreign keys of {', '.join(referring)} with ON DELETE refer to target {table.label}, and SQLite enforces "
            "them when its rows are deleted, before the new rows are there"
        )
        return problem, "Leave ON DELETE out of these foreign keys, or write to a table without them."
    return None


def staging_statements(connection: sa.Connection, target: Table, name: str) -> list[str] | None:
    """Return the statements that create an empty table with a target's columns, checks and unique keys.

    :param connection: an open connection
    :param target: the target
    :param name: name of the new table, in the target's schema
    :return: the statements; None if the target's definition cannot be copied, since it is a virtual table
    """
    place = quote(target.schema)
    query = f"SELECT type, sql FROM {place}.sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type DESC"
    found: list[str] = []
    for kind, sql in connection.exec_driver_sql(query, (target.name,)).all():
        index = f"{place}.{quote(f'{name}_{len(found)}')}"
        if kind == "table" and _TABLE.match(sql):
            found.append(f"CREATE TABLE {place}.{quote(name)} {_TABLE.sub('', sql, count=1)}")
        elif kind == "index" and _UNIQUE_INDEX.match(sql):
            found.append(f"CREATE UNIQUE INDEX {index} ON {quote(name)} {_UNIQUE_INDEX.sub('', sql, count=1)}")
        elif kind == "table" or (kind == "index" and " UNIQUE " in sql[:16].upper()):
            return None
    return found
