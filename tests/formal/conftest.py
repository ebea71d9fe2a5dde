"""Fixtures of the formal tests: a ledger on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.ledger.ledger_driver import LedgerDriver
from tests.services.ledgers import new_ledger_file


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with nothing in it."""
    with Ledger.open(new_ledger_file(tmp_path / "ledger.db")) as ledger:
        yield ledger


@pytest.fixture
def driver(sqlite_ledger: Ledger) -> LedgerDriver:
    """A pipeline whose lease is held and whose partition ``t`` has started at 0."""
    return LedgerDriver(sqlite_ledger).start("t")
