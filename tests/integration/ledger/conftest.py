"""Fixtures of the ledger's tests: every test that asks for a ledger runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate, tables
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url
from tests.integration.ledger.ledger_driver import LedgerDriver
from tests.services.ledgers import new_ledger_file
from tests.services.postgres import PostgresServer

BOTH = ["sqlite", "postgresql"]


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a ledger that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture(scope="session")
def migrated_database(postgres_server: PostgresServer) -> str:
    """A PostgreSQL ledger that tests use in turn."""
    url = postgres_server.new_database(kept=True)
    migrate.upgrade(url)
    return url


@pytest.fixture(params=BOTH)
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger at the newest revision, with nothing in it."""
    if request.param == "sqlite":
        return new_ledger_file(tmp_path / "ledger.db")
    url: str = request.getfixturevalue("migrated_database")
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        for table in tables.metadata.sorted_tables:
            if table is not tables.ledger:
                connection.execute(sa.delete(table))
    engine.dispose()
    return url


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """The same, opened."""
    with Ledger.open(ledger_url) as opened:
        yield opened


@pytest.fixture
def driver(ledger: Ledger) -> LedgerDriver:
    """A pipeline whose lease is held and whose partition ``t`` has started at 0."""
    return LedgerDriver(ledger).start("t")
