"""Many rows in one statement: PostgreSQL gets them as one JSON parameter, SQLite by its own bulk call.

A statement's text does not depend on the number of rows, so it is built and parsed once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

Rows = Sequence[dict[str, Any]]
Upsert = postgresql.Insert | sqlite.Insert


def insert(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Insert rows; all of them have the same columns."""
    if rows:
        _execute(connection, _statement(connection, table, rows), rows)


def insert_missing(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Insert rows, and leave those whose primary key is taken as they are."""
    if rows:
        _execute(connection, _statement(connection, table, rows).on_conflict_do_nothing(), rows)


def upsert(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Insert rows, and where the primary key is taken, overwrite."""
    if not rows:
        return
    statement = _statement(connection, table, rows)
    keys = [column.name for column in table.primary_key]
    values = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    _execute(connection, statement.on_conflict_do_update(index_elements=keys, set_=values), rows)


def among(connection: Connection, column: sa.Column[Any], values: Sequence[int]) -> sa.ColumnElement[bool]:
    """Whether an integer column is one of many values, given as one parameter."""
    if connection.dialect.name == "sqlite":
        given = sa.func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(sa.select(given.c.value))
    return column == sa.func.any(sa.cast(list(values), postgresql.ARRAY(sa.BigInteger)))


def _statement(connection: Connection, table: sa.Table, rows: Rows) -> Upsert:
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    names = list(rows[0])
    parameter = sa.cast(sa.bindparam("rows", type_=sa.Text), sa.JSON)
    columns = [sa.column(name, table.c[name].type) for name in names]
    given = sa.func.json_to_recordset(parameter).table_valued(*columns).render_derived(name="given", with_types=True)
    return cast("Upsert", postgresql.insert(table).from_select(names, sa.select(*given.c)))


def _execute(connection: Connection, statement: Upsert, rows: Rows) -> None:
    if connection.dialect.name == "sqlite":
        connection.execute(statement, list(rows))
    else:
        connection.execute(statement, {"rows": json.dumps(rows, default=str)})
