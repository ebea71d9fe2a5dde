"""Create the sink's bookkeeping tables (fence, receipts, dead letters, replays) and columns that are absent."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.durability import with_durable_commit
from airflow_provider_ckpt.connectors.postgres.receipts import (
    ALL_TABLES,
    CREATION_LOCK,
    LATER_COLUMNS,
    TABLES,
    BookkeepingTables,
)
from airflow_provider_ckpt.connectors.postgres.table import Fetch
from airflow_provider_ckpt.core.errors import ConfigError

_TRIES = 5
"""Greatest number of attempts to create the tables; an attempt that ends in a deadlock is repeated."""
_ABSENT_TABLES = """
SELECT name FROM unnest({1}::text[]) AS name
WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {0}::text AND c.relname = name AND (name <> 'ckpt_sink_receipt' OR EXISTS (
        SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'positions'))
)
"""
_ABSENT_COLUMNS = """
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN unnest({1}::text[], {2}::text[]) AS later (relation, name) ON c.relname = later.relation
WHERE n.nspname = {0}::text AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attname = later.name AND NOT a.attisdropped
)
"""


def lacks_tables(fetch: Fetch, bookkeeping: BookkeepingTables, names: Sequence[str] = TABLES) -> bool:
    """Return whether a bookkeeping table does not exist, or the receipt table lacks ``positions``, as in old versions.

    :param fetch: runs a query and returns its rows
    :param bookkeeping: the bookkeeping tables
    :param names: names of the tables to look up; by default all but the table of replays
    """
    return bool(fetch(_ABSENT_TABLES, [bookkeeping.schema, list(names)]))


def lacks_columns(fetch: Fetch, bookkeeping: BookkeepingTables) -> bool:
    """Return whether an existing bookkeeping table lacks a column because an earlier version of the package created it.

    :param fetch: runs a query and returns its rows
    :param bookkeeping: the bookkeeping tables
    """
    return bool(fetch(_ABSENT_COLUMNS, [bookkeeping.schema, *map(list, zip(*LATER_COLUMNS, strict=True))]))


def create_tables(fetch: Fetch, bookkeeping: BookkeepingTables, connection: str, pipeline: str) -> None:
    """Create the bookkeeping tables and columns that are absent.

    If the statement ends in a deadlock, as with another run that is already writing to the tables, it is run again, up
    to five times in all.

    :param fetch: runs a statement over a psycopg2 connection, in autocommit mode
    :param bookkeeping: the bookkeeping tables
    :param connection: id of the Airflow connection, for the message
    :param pipeline: the pipeline's name, for the message
    :raises ConfigError: if the user may not create them
    :raises psycopg2.errors.DeadlockDetected: if every attempt ended in a deadlock
    """
    import psycopg2

    statement = f"SELECT pg_catalog.pg_advisory_xact_lock({CREATION_LOCK:d}); {bookkeeping.create.format()} SELECT 1"
    for tries_left in reversed(range(_TRIES)):
        if not lacks_tables(fetch, bookkeeping, ALL_TABLES) and not lacks_columns(fetch, bookkeeping):
            return
        try:
            fetch(with_durable_commit(statement), [])
        except psycopg2.errors.DeadlockDetected:
            if not tries_left:
                raise
        except psycopg2.errors.InsufficientPrivilege as error:
            raise ConfigError(
                f"the user of connection {connection!r} may not create the sink's bookkeeping tables "
                f"({', '.join(ALL_TABLES)}) in schema {bookkeeping.schema}, or add columns that this version needs.",
                pipeline=pipeline,
                hint=f"GRANT CREATE ON SCHEMA {quote(bookkeeping.schema)} to it, or let the schema's owner run the "
                "script of `airflow ckpt db roles sink`.",
            ) from error
