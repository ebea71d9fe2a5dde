"""Open an SQLite file and describe its tables, for source and sink."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote as quote_url

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.connection import Connection

SYSTEM = "sqlite"
_SECONDS = 30.0
"""Time that a transaction waits for another one's lock."""


def open_file(path: str, key: str) -> sqlite3.Connection:
    """Open a database file, in autocommit mode.

    :param path: the file
    :param key: key of the declaration that names it, for the message
    :raises ConfigError: if there is no such file, or it is no database
    """
    try:
        found = sqlite3.connect(f"file:{quote_url(path)}?mode=rw", timeout=_SECONDS, isolation_level=None, uri=True)
        found.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error as error:
        raise ConfigError(f"{key}: {path} cannot be opened: {error}.", hint=f"Correct {key}.") from error
    return found


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the file's only write lock from the first statement on; commit, or roll back after any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def quote(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def table_sql(connection: sqlite3.Connection, table: str) -> str | None:
    """Return the statement that created a table; None if there is no such table."""
    row = connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", [table]).fetchone()
    return str(row[0]) if row else None


def identity(path: str, table: str) -> str:
    """Return a text that changes if the file is replaced: path, inode and table."""
    return f"{Path(path).resolve()}#{Path(path).stat().st_ino}/{table}"


def dead_letter_place(pipeline: Pipeline, _: Callable[[str], Connection]) -> str:
    """Return a phrase for the place of the dead letters that the sink stores."""
    return f"table ckpt_dead_letter beside {pipeline.sink.place}"
