"""Support for the tests of the sql source and sink: databases of both kinds, and pipelines."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from tests.services.mariadb import MariaDbServer


class Database(Protocol):
    """A database of a test's own.

    :ivar connection: as connectors get it
    """

    connection: Connection

    def execute(self, *statements: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run statements, each in a transaction of its own; the rows of the last, which has the parameters."""


class MariaDb:
    """A database of a MariaDB server."""

    def __init__(self, server: MariaDbServer) -> None:
        self.server = server
        self.name = server.new_database()
        self.connection = server.connection(self.name)

    def execute(self, *statements: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return self.server.execute(self.name, *statements, parameters=parameters)


class Sqlite:
    """A file.

    :param folder: its directory
    :param name: its name
    """

    def __init__(self, folder: Path, name: str = "shop.sqlite") -> None:
        self.path = folder / name
        self.connection = Connection("shop", "sqlite", host=str(self.path))
        self.execute("PRAGMA journal_mode = WAL")

    def execute(self, *statements: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as opened:
            for at, statement in enumerate(statements, 1):
                given = parameters if parameters is not None and at == len(statements) else ()
                rows = opened.execute(statement.replace("%s", "?"), given).fetchall()
        return rows


def staging_tables(database: Database) -> list[str]:
    """Names of the staging tables of refreshes."""
    catalog = (
        f"information_schema.tables WHERE table_schema = '{database.name}' AND table_name"
        if isinstance(database, MariaDb)
        else "sqlite_schema WHERE type = 'table' AND name"
    )
    name = "table_name" if isinstance(database, MariaDb) else "name"
    return [str(found) for (found,) in database.execute(f"SELECT {name} FROM {catalog} LIKE 'ckpt_stage%'")]


def pipeline(
    name: str = "orders", *, source: dict[str, Any] | None = None, sink: dict[str, Any] | None = None, **rest: Any
) -> Pipeline:
    """A pipeline from ``source`` by ``id`` to ``target``."""
    place = {"type": "sql", "connection": "shop"}
    return Pipeline.model_validate(
        {
            "name": name,
            "source": {**place, "table": "source", "cursor": "id", "close_wait": "2s"} | (source or {}),
            "sink": {**place, "table": "target"} | (sink or {}),
            "delivery": "exactly_once",
        }
        | rest
    )
