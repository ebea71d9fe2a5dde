"""Write many rows in one statement: in PostgreSQL by COPY or as one JSON parameter, in SQLite by ``executemany``.

The text of a statement does not depend on the number of rows; it is built once per process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import copy

Rows = Sequence[dict[str, Any]]
Names = tuple[str, ...]
Upsert = postgresql.Insert | sqlite.Insert

FIRST, LAST = "first", "last"
"""Keys of a row that stands for an interval of consecutive numbers: its first and last number, both inclusive.

:func:`runs` computes such intervals.
"""

SQLITE = "sqlite"


def insert(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Insert rows into a table.

    :param connection: connection inside a transaction
    :param table: the table
    :param rows: rows as dicts, all with the same columns
    """
    if rows:
        insert_values(connection, table, tuple(rows[0]), [tuple(row.values()) for row in rows])


def insert_values(connection: Connection, table: sa.Table, names: Names, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows that are given as tuples of values.

    :param connection: connection inside a transaction
    :param table: the table
    :param names: names of the columns
    :param rows: values of each row, in the order of the names
    """
    if len(rows) > 1 and connection.dialect.name != SQLITE:
        copy.copy_rows(connection, table, names, rows)
    elif rows:
        statement = _insert(connection.dialect.name, table, names)
        _execute(connection, statement, [dict(zip(names, row, strict=True)) for row in rows])


def insert_missing(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Insert the rows whose primary key is not in the table yet; existing rows are not changed.

    :param connection: connection inside a transaction
    :param table: the table
    :param rows: rows, all with the same columns
    """
    if rows:
        _execute(connection, _insert_missing(connection.dialect.name, table, tuple(rows[0])), rows)


def upsert(connection: Connection, table: sa.Table, rows: Rows, *, added: Names = (), grown: Names = ()) -> None:
    """Insert rows into a table; a row whose primary key exists already overwrites the stored row.

    :param connection: connection inside a transaction
    :param table: the table
    :param rows: rows, all with the same columns
    :param added: columns whose new value is added to the stored value instead of overwriting it
    :param grown: columns in which the greater of the stored and the new value remains
    """
    if rows:
        _execute(connection, _upsert(connection.dialect.name, table, tuple(rows[0]), added, grown), rows)


def update(connection: Connection, table: sa.Table, rows: Rows, *, unset: str | None = None) -> None:
    """Update the stored rows whose primary key, or the given part of it, equals that of a given row.

    :param connection: connection inside a transaction
    :param table: the table
    :param rows: the given rows, all with the same columns: columns of the primary key select the stored rows, and the
        others are their new values
    :param unset: name of a column; only stored rows in which this column is NULL are updated. None to update all
        selected rows
    """
    if rows:
        _execute(connection, _update(connection.dialect.name, table, tuple(rows[0]), unset), rows)


def update_runs(connection: Connection, table: sa.Table, number: str, rows: Rows, values: dict[str, Any]) -> None:
    """Set the same values in all stored rows of some intervals of numbers, such as batches 5 to 9 of a partition.

    :param connection: connection inside a transaction
    :param table: the table
    :param number: name of the column that contains the number
    :param rows: the intervals, as dicts with the first and last number (keys :data:`FIRST` and :data:`LAST`,
        inclusive), and columns of the table whose values select the stored rows
    :param values: new values by column
    """
    if rows:
        names = tuple(name for name in rows[0] if name not in (FIRST, LAST))
        statement = _update_runs(connection.dialect.name, table, names, number, tuple(values))
        _execute(connection, statement, rows, {f"new_{name}": value for name, value in values.items()})


def delete(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Delete the stored rows that have the same values as one of the given rows.

    :param connection: connection inside a transaction
    :param table: the table
    :param rows: the given rows, all with the same columns; other columns of the table are not compared
    """
    if rows:
        _execute(connection, _delete(connection.dialect.name, table, tuple(rows[0]), None), rows)


def delete_runs(connection: Connection, table: sa.Table, number: str, rows: Rows) -> None:
    """Delete all stored rows of some intervals of numbers, such as batches 5 to 9 of a partition.

    :param connection: connection inside a transaction
    :param table: the table
    :param number: name of the column that contains the number
    :param rows: the intervals, as dicts with the first and last number (keys :data:`FIRST` and :data:`LAST`,
        inclusive), and columns of the table whose values select the stored rows
    """
    if rows:
        names = tuple(name for name in rows[0] if name not in (FIRST, LAST))
        _execute(connection, _delete(connection.dialect.name, table, names, number), rows)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return distinct numbers as the fewest intervals without gaps, each as ``(first, last)``, both inclusive.

    :param numbers: distinct numbers in any order, such as the seqs of batches
    """
    ordered = sorted(numbers)
    breaks = [at for at, (one, other) in enumerate(pairwise(ordered), start=1) if other != one + 1]
    starts, ends = [0, *breaks], [*breaks, len(ordered)]
    return [(ordered[start], ordered[end - 1]) for start, end in zip(starts, ends, strict=True)] if ordered else []


def given_rows(dialect: str, table: sa.Table, names: Iterable[str], *, numbers: Names = ()) -> sa.FromClause:
    """Return a relation with the rows of the JSON parameter ``given``, for use in the joins of a statement.

    :param dialect: name of the SQL dialect, ``postgresql`` or ``sqlite``
    :param table: table that defines the types of the columns
    :param names: names of the columns, all of this table
    :param numbers: names of further columns, which contain 64-bit integers
    """
    kinds = {**{name: table.c[name].type for name in names}, **dict.fromkeys(numbers, sa.BigInteger())}
    parameter = sa.bindparam("given", type_=sa.Text)
    if dialect == SQLITE:
        each = sa.func.json_each(parameter).table_valued("value")
        columns = [sa.func.json_extract(each.c.value, f"$.{name}", type_=kinds[name]).label(name) for name in kinds]
        return sa.select(*columns).subquery("given")
    typed = [sa.column(name, kind) for name, kind in kinds.items()]
    records = sa.func.json_to_recordset(sa.cast(parameter, sa.JSON)).table_valued(*typed)
    return records.render_derived(name="given", with_types=True)


def look_up_each(dialect: str, outer: sa.FromClause, table: sa.Table, *where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Build a query that looks up, for each row of a relation, the matching rows of a table, so that an index is used.

    PostgreSQL would read a big table as a whole if it estimates that enough rows match; ``OFFSET 0`` keeps the look-up
    a query of its own. SQLite would begin with the table if a condition on it contained a parameter, so every condition
    must refer to ``outer``.

    :param dialect: name of the SQL dialect, ``postgresql`` or ``sqlite``
    :param outer: the relation
    :param table: the table
    :param where: conditions, each of which compares columns of the table with columns of ``outer``
    """
    if dialect == SQLITE:
        return sa.select(table).select_from(outer.join(table, sa.and_(*where)))
    found = sa.select(table).where(*where).correlate(outer).offset(0).lateral("found")
    return sa.select(found).select_from(outer.join(found, sa.true()))


def as_json(rows: Rows) -> str:
    """Return rows as JSON text, the value of the statement parameter ``given``, which :func:`given_rows` expands."""
    return json.dumps(rows, default=str)


@lru_cache
def _insert(dialect: str, table: sa.Table, names: Names) -> Upsert:
    if dialect == SQLITE:
        return sqlite.insert(table).values(_given_columns(dialect, table, names))
    from_rows = given_rows(dialect, table, names)
    return cast("Upsert", postgresql.insert(table).from_select(names, sa.select(*from_rows.c)))


@lru_cache
def _insert_missing(dialect: str, table: sa.Table, names: Names) -> Upsert:
    return _insert(dialect, table, names).on_conflict_do_nothing()


@lru_cache
def _upsert(dialect: str, table: sa.Table, names: Names, added: Names, grown: Names) -> Upsert:
    statement = _insert(dialect, table, names)
    new = statement.excluded
    keys = [column.name for column in table.primary_key]
    values: dict[str, sa.ColumnElement[Any]] = {name: new[name] for name in names if name not in keys}
    values |= {name: table.c[name] + new[name] for name in added}
    values |= {name: sa.case((new[name] > table.c[name], new[name]), else_=table.c[name]) for name in grown}
    return statement.on_conflict_do_update(index_elements=keys, set_=values)


@lru_cache
def _update(dialect: str, table: sa.Table, names: Names, unset: str | None) -> sa.Update:
    new = _given_columns(dialect, table, names)
    keys = [name for name in names if table.c[name].primary_key]
    where = [table.c[name] == new[name] for name in keys]
    if unset is not None:
        where.append(table.c[unset].is_(None))
    return table.update().where(*where).values({name: new[name] for name in names if name not in keys})


@lru_cache
def _update_runs(dialect: str, table: sa.Table, names: Names, number: str, values: Names) -> sa.Update:
    new = _given_columns(dialect, table, names, (FIRST, LAST))
    where = [table.c[name] == new[name] for name in names]
    span = table.c[number].between(new[FIRST], new[LAST])
    changes = {name: sa.bindparam(f"new_{name}", type_=table.c[name].type) for name in values}
    return table.update().where(*where, span).values(changes)


@lru_cache
def _delete(dialect: str, table: sa.Table, names: Names, number: str | None) -> sa.Delete:
    new = _given_columns(dialect, table, names, () if number is None else (FIRST, LAST))
    where = [table.c[name] == new[name] for name in names]
    if number is not None:
        where.append(table.c[number].between(new[FIRST], new[LAST]))
    return table.delete().where(*where)


def _given_columns(
    dialect: str, table: sa.Table, names: Names, numbers: Names = ()
) -> dict[str, sa.ColumnElement[Any]]:
    """Return the columns of the rows to write as SQL expressions, by name.

    In PostgreSQL they are columns of the expanded JSON parameter, in SQLite one bind parameter per column.

    :param dialect: name of the SQL dialect, ``postgresql`` or ``sqlite``
    :param table: table that defines the types of the columns
    :param names: names of the columns, all of this table
    :param numbers: names of further columns, which contain 64-bit integers
    """
    if dialect == SQLITE:
        kinds = {**{name: table.c[name].type for name in names}, **dict.fromkeys(numbers, sa.BigInteger())}
        return {name: sa.bindparam(f"given_{name}", type_=kind) for name, kind in kinds.items()}
    return {column.name: column for column in given_rows(dialect, table, names, numbers=numbers).c}


def _execute(
    connection: Connection, statement: sa.Executable, rows: Rows, more: Mapping[str, Any] | None = None
) -> None:
    same = dict(more or {})
    if connection.dialect.name == SQLITE:
        connection.execute(statement, [{f"given_{name}": row[name] for name in row} | same for row in rows])
    else:
        connection.execute(statement, {"given": as_json(rows), **same})
