"""Tables that tests and benchmarks replicate, and functions that run a single SQL statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS = """
    id bigint {key},
    customer integer NOT NULL,
    amount double precision NOT NULL,
    created_at timestamptz NOT NULL,
    status text NOT NULL,
    note text NOT NULL
"""
"""About 200 bytes a row as PostgreSQL stores it."""

ROWS = """
    SELECT i, (i * 7919) % 50000, (i % 100000) / 100.0, timestamptz '2024-01-01 00:00Z' + i * interval '1 second',
           (ARRAY['new', 'paid', 'sent', 'returned'])[1 + i % 4],
           md5(i::text) || md5((i * 3)::text) || md5((i * 5)::text) || md5((i * 7)::text)
    FROM generate_series({start}::bigint, {end}::bigint - 1) AS i
"""


def execute(dsn: str, *statements: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run statements, each in a transaction of its own; the rows of the last.

    :param parameters: of the last statement
    """
    import psycopg2

    connection = psycopg2.connect(dsn, application_name="test")
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for at, statement in enumerate(statements, 1):
                cursor.execute(statement, parameters if at == len(statements) else None)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def scalar(dsn: str, statement: str, parameters: Sequence[Any] | None = None) -> Any:
    """The one value that a statement gives."""
    return execute(dsn, statement, parameters=parameters)[0][0]


def make_source(dsn: str, name: str, rows: int) -> None:
    """A table of orders with ids from 1, analysed, with a primary key."""
    execute(
        dsn,
        f"CREATE TABLE {name} ({COLUMNS.format(key='PRIMARY KEY')})",
        f"INSERT INTO {name} {ROWS.format(start=1, end=rows + 1)}",
        f"VACUUM ANALYZE {name}",
    )


def add_rows(dsn: str, name: str, start: int, end: int) -> None:
    """More orders, with ids from ``start`` to before ``end``."""
    execute(dsn, f"INSERT INTO {name} {ROWS.format(start=start, end=end)}")


def make_target(dsn: str, name: str, *, key: str = "NOT NULL") -> None:
    """An empty table for orders; without a key, so that a duplicate would show.

    :param key: the constraint on ``id``
    """
    execute(dsn, f"CREATE TABLE {name} ({COLUMNS.format(key=key)})")
