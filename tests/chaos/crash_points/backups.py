"""Copies of a trial's target and ledger, taken at one moment and restored later, as from a backup."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg2
from psycopg2 import sql

from tests.chaos.crash_points.servers import Servers

_PIPELINE_OF: Mapping[str, str] = {"ckpt_pipeline": "name"}
"""Tables whose column for the pipeline has another name than ``pipeline``."""


class Archive(Protocol):
    """A copy of a target or a ledger, named after it."""

    def save(self) -> None:
        """Take the copy."""

    def put_back(self) -> None:
        """Restore the state that the target or ledger had when the copy was taken."""


class Rows:
    """Rows of some tables of a database, copied and put back in one transaction each.

    :param tables: by name, the column and the value that select the rows, None for all of them
    """

    def __init__(self, dsn: str, tables: Mapping[str, tuple[str, str] | None]) -> None:
        self._dsn = dsn
        self._tables = tables

    def save(self) -> None:
        self._all("CREATE TABLE {copy} AS SELECT * FROM {table} WHERE {rows}")

    def put_back(self) -> None:
        self._all("DELETE FROM {table} WHERE {rows}", "INSERT INTO {table} SELECT * FROM {copy}", "DROP TABLE {copy}")

    def _all(self, *statements: str) -> None:
        with closing(psycopg2.connect(self._dsn)) as connection, connection, connection.cursor() as cursor:
            connection.set_session(isolation_level="REPEATABLE READ")
            for number, (name, chosen) in enumerate(self._tables.items()):
                column, value = chosen or ("", "")
                parts = {
                    "table": sql.Identifier(name),
                    "copy": sql.Identifier(f"copy {number} {value or name}"),  # of at most 63 bytes
                    "rows": sql.SQL("{} = {}").format(sql.Identifier(column), sql.Literal(value))
                    if chosen
                    else sql.SQL("true"),
                }
                for statement in statements:
                    cursor.execute(sql.SQL(statement).format(**parts))


def of_table(servers: Servers, name: str) -> Archive:
    """A table sink's rows with its bookkeeping."""
    books = {table: ("pipeline", name) for table in _tables(servers.dsn) if table.startswith("ckpt_sink_")}
    return Rows(servers.dsn, {f"{name}-out": None, **books})


def of_ledger(servers: Servers, name: str) -> Archive:
    """Return the rows of the ledger that belong to a pipeline."""
    at = urlsplit(servers.ledger)
    dsn = urlunsplit(at._replace(scheme="postgresql"))
    kept = [table for table in _tables(dsn) if table.startswith("ckpt_") and _selects(dsn, table)]
    return Rows(dsn, {table: (_PIPELINE_OF.get(table, "pipeline"), name) for table in kept})


class Directory:
    """A directory with everything below it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._copy = place.with_name(f"{place.name}-copy")

    def save(self) -> None:
        shutil.copytree(self._place, self._copy, symlinks=True)

    def put_back(self) -> None:
        shutil.rmtree(self._place)
        self._copy.rename(self._place)


def of_delta(servers: Servers, name: str) -> Archive:
    """A Delta table's directory, bookkeeping included."""
    return Directory(servers.folder / f"{name}-out")


class IcebergPointer:
    """The catalog's pointer to a table's metadata; files stay where they are."""

    def __init__(self, servers: Servers, name: str) -> None:
        self._dsn = servers.dsn
        self._table = name.replace("-", "_")
        self._location = ""

    def save(self) -> None:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = %s"
        self._location = str(self._run(query, [self._table])[0][0])

    def put_back(self) -> None:
        update = "UPDATE iceberg_tables SET metadata_location = %s WHERE table_name = %s RETURNING 1"
        assert self._run(update, [self._location, self._table])

    def _run(self, statement: str, values: Sequence[str]) -> list[tuple[object, ...]]:
        with closing(psycopg2.connect(self._dsn)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())


def _tables(dsn: str) -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return [name for (name,) in cursor.fetchall()]


def _selects(dsn: str, table: str) -> bool:
    """Return whether a table has a column that names the pipeline of a row."""
    query = "SELECT 1 FROM information_schema.columns WHERE table_name = %s AND column_name = %s"
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(query, [table, _PIPELINE_OF.get(table, "pipeline")])
        return cursor.fetchone() is not None
