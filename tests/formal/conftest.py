"""Fixtures of the formal tests: a ledger on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.integration.ledger.ledger_driver import LedgerDriver


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with nothing in it."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    migrate.upgrade(url, create=True)
    with Ledger.open(url) as ledger:
        yield ledger


@pytest.fixture
def driver(sqlite_ledger: Ledger) -> LedgerDriver:
    """A pipeline whose lease is held and whose partition ``t`` has started at 0."""
    return LedgerDriver(sqlite_ledger).start("t")
