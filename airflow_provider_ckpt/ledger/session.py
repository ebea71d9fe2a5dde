"""Connect to a ledger, and open the transactions of its commands and the snapshots of its queries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Self

import sqlalchemy as sa

from airflow_provider_ckpt.ledger.store import database, migrate, tables
from airflow_provider_ckpt.ledger.types import Lease
from airflow_provider_ckpt.ledger.unit_of_work import TouchedBatches, UnitOfWork


class Session:
    """Connection to one ledger database; open it with :meth:`open`.

    A command is one transaction, except garbage collection, which deletes rows in several; a query reads one snapshot.

    :param engine: SQLAlchemy engine of the ledger's database
    :param description: location of the ledger, for error messages
    :param ledger_id: the ledger's UUID
    :ivar id: the ledger's UUID
    :ivar seconds: total duration of the transactions on this connection so far, in seconds
    """

    def __init__(self, engine: sa.Engine, description: str, ledger_id: str) -> None:
        self.id = ledger_id
        self.seconds = 0.0
        self._engine = engine
        self._description = description

    @classmethod
    def open(cls, url: str) -> Self:
        """Open an existing ledger and return the connection to it.

        :param url: ``postgresql://…`` or ``sqlite:///path``
        :raises LedgerUnavailableError: if the ledger does not exist, is at another schema revision, or cannot be
            reached
        :raises ConfigError: if the URL has another scheme, or cannot be read
        """
        parsed = database.parse_url(url)
        description = database.describe(parsed)
        migrate.require_file(parsed)
        engine = database.create_engine(parsed)
        try:
            with database.open_snapshot(engine, description) as connection:
                migrate.require_head(connection, description)
                ledger_id: str = connection.execute(sa.select(tables.ledger.c.id)).scalar_one()
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, description, ledger_id)

    def close(self) -> None:
        """Close all connections to the ledger's database."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self, patience: timedelta | None = None) -> Iterator[sa.Connection]:
        with self._measure_time(), database.open_transaction(self._engine, self._description, patience) as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._measure_time(), database.open_snapshot(self._engine, self._description) as connection:
            yield connection

    @contextmanager
    def _measure_time(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - started

    @contextmanager
    def _command(
        self, lease: Lease, now: datetime | None = None, touch: TouchedBatches = None, patience: timedelta | None = None
    ) -> Iterator[UnitOfWork]:
        with self._writing(patience) as connection:
            yield UnitOfWork(connection, lease, now or datetime.now(UTC), touch)
