"""Fixtures of the tests of commands and operators: a SQLite ledger that the configuration names, and commands on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.airflow.ckpt import Ckpt
from tests.integration.airflow.users import People, filled
from tests.integration.ledger.ledger_driver import LedgerDriver
from tests.services.ledgers import new_ledger_file


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A ledger of the test's own, where ``airflow ckpt`` finds it."""
    url = new_ledger_file(tmp_path / "ledger.db")
    monkeypatch.delenv("AIRFLOW_CONN_CKPT_DEFAULT", raising=False)
    monkeypatch.setenv("AIRFLOW__CKPT__SQL_ALCHEMY_CONN", url)
    with Ledger.open(url) as opened:
        yield opened


@pytest.fixture
def ckpt(ledger: Ledger, capfd: pytest.CaptureFixture[str]) -> Ckpt:
    """The commands, on that ledger."""
    return Ckpt(capfd)


@pytest.fixture
def orders(ledger: Ledger) -> LedgerDriver:
    """Pipeline ``orders``: its lease is held, and its partition ``t`` has started at 0."""
    return LedgerDriver(ledger).start("t")


@pytest.fixture
def people(ledger: Ledger, tmp_path: Path) -> People:
    """Pipeline ``people`` in that ledger: three batches delivered, one in flight, one planned, the lease free."""
    return filled(ledger, tmp_path)
