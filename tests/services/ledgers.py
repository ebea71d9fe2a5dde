"""Empty ledgers for tests: copies of one that was migrated once, since a migration takes longer than most tests."""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from contextlib import closing
from functools import cache
from pathlib import Path

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.tables import execute

_SET_ID = "UPDATE ckpt_ledger SET id = {}"


def new_ledger_database(server: PostgresServer) -> str:
    """Create a database that holds an empty ledger, and return its dsn.

    :param server: the server, on which the first such database is migrated and the others are copied from it
    """
    dsn = server.copied_database("ledger", lambda template: migrate.upgrade(sqlalchemy_url(template)))
    execute(dsn, _SET_ID.format("gen_random_uuid()"))
    return dsn


def make_ledger(server: PostgresServer) -> Ledger:
    """Open an empty ledger in a database of its own; the caller closes it.

    :param server: the server of the database
    """
    return Ledger.open(sqlalchemy_url(new_ledger_database(server)))


def new_ledger_file(path: Path) -> str:
    """Write a SQLite file that holds an empty ledger, and return its URL.

    :param path: path of the file, which does not exist yet
    """
    with private_files.create(path) as file:
        file.write(_migrated_file())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(_SET_ID.format("?"), [str(uuid.uuid4())])
    return f"sqlite:///{path}"


@cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="ckpt-ledger-") as folder:
        path = Path(folder) / "ledger.db"
        migrate.upgrade(f"sqlite:///{path}", create=True)
        return path.read_bytes()
