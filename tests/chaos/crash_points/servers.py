"""The servers that runs use: PostgreSQL, MariaDB, Kafka and an S3 store, and proxies between them and the runs."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.ledger.store import migrate
from tests.services.http_proxy import HttpProxy
from tests.services.kafka import KafkaBroker
from tests.services.mariadb import MariaDbServer
from tests.services.postgres import PostgresServer, sqlalchemy_url, through
from tests.services.proxy import Proxy
from tests.services.replication import connection_to
from tests.services.s3 import VersityGateway

DATABASE, STREAM, LAKE, SHOP, FILE = "database", "stream", "lake", "shop", "file"
STORE, STORED_LAKE = "store", "stored_lake"
"""The ids of the connections."""

_IMPATIENT = {
    "socket.timeout.ms": 3000,
    "transaction.timeout.ms": 10_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


_CARELESS = {"synchronous_commit": "off", "wal_writer_delay": "10s"}
"""Settings of a database server that loses what was acknowledged in a crash, unless a session asks for more."""


class Server(StrEnum):
    """A server besides Spark that can be struck."""

    POSTGRES = "postgres"
    KAFKA = "kafka"
    MARIADB = "mariadb"
    STORE = "store"


class Servers:
    """Servers, proxies and databases; runs and their ledger reach the servers by the proxies alone.

    It dies with the thread that started it, so start it from the main thread.

    :param folder: for source files and tables of files; made if it is not there
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._open as stack:
            self.rows, self.books, self.stream, self.sales = (stack.enter_context(Proxy()) for _ in range(4))
            self.postgres = stack.enter_context(PostgresServer(_CARELESS, in_memory=True))
            for proxy in (self.rows, self.books):
                proxy.lead_to(self.postgres.port)
            self.kafka = stack.enter_context(KafkaBroker(proxy=self.stream))
            self.mariadb = stack.enter_context(MariaDbServer(in_memory=True))
            self.sales.lead_to(self.mariadb.port)
            self.shop = self.mariadb.new_database()
            with closing(sqlite3.connect(self.file)) as opened:
                opened.execute("PRAGMA journal_mode = WAL")
            self.store = stack.enter_context(VersityGateway())
            self.requests = stack.enter_context(HttpProxy(self.store.client_port))
            self.dsn = self.postgres.new_database()
            ledger = self.postgres.new_database()
            migrate.upgrade(sqlalchemy_url(ledger))
            self.ledger = sqlalchemy_url(through(self.books, ledger))
            self._open = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    @property
    def file(self) -> Path:
        """The SQLite file of all source tables."""
        return self.folder / "source.sqlite"

    @property
    def lake(self) -> dict[str, str]:
        """The properties of an Iceberg catalog in the database."""
        warehouse = f"file://{self.folder}/warehouse"
        return {"type": "sql", "uri": through(self.rows, self.dsn), "warehouse": warehouse}

    @property
    def stored_lake(self) -> dict[str, str]:
        """The properties of an Iceberg catalog in the database, whose warehouse is in the store."""
        return {**self.lake, "warehouse": self.store.url("warehouse"), **self._store_properties(self.requests.port)}

    @property
    def direct_stored_lake(self) -> dict[str, str]:
        """The same catalog as a reader opens it, past the proxies."""
        uri = sqlalchemy_url(self.dsn)
        return {**self.stored_lake, "uri": uri, **self._store_properties(self.store.port)}

    def _store_properties(self, port: int) -> dict[str, str]:
        connection = self.store.connection(port)
        return {
            "s3.endpoint": connection.extra["endpoint_url"],
            "s3.access-key-id": str(connection.login),
            "s3.secret-access-key": str(connection.password),
            "s3.region": connection.extra["region_name"],
        }

    @property
    def connections(self) -> dict[str, Connection]:
        """Return the connections in the form that runs get them."""
        extra = {"bootstrap.servers": self.kafka.bootstrap, **_IMPATIENT}
        return {
            DATABASE: connection_to(through(self.rows, self.dsn), DATABASE),
            STREAM: Connection(STREAM, "kafka", extra=extra),
            LAKE: Connection(LAKE, "generic", extra=self.lake),
            SHOP: self.mariadb.connection(self.shop, SHOP, port=self.sales.port),
            FILE: Connection(FILE, "sqlite", host=str(self.file)),
            STORE: replace(self.store.connection(self.requests.port), id=STORE),
            STORED_LAKE: Connection(STORED_LAKE, "generic", extra=self.stored_lake),
        }

    def calm(self) -> None:
        """End all faults of the proxies, so that connections work again."""
        for proxy in (self.rows, self.books, self.stream, self.sales):
            proxy.calm()
        self.requests.calm()

    def crash_postgres(self) -> None:
        """Kill the server as in a crash, and start it again."""
        self.postgres.stop(signal.SIGQUIT, keep=True)
        self.postgres.start()

    def crash_store(self) -> None:
        """Kill the store, and start it again; it has its objects in files."""
        self.store.kill()
        self.store.start()

    def crash_kafka(self) -> None:
        """Kill the broker as in a crash, and start it again."""
        self.kafka.kill()
        self.kafka.start()

    def crash_mariadb(self) -> None:
        """Kill the server as in a crash, and start it again."""
        self.mariadb.stop(signal.SIGKILL, keep=True)
        self.mariadb.start()
