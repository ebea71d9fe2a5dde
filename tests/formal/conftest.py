"""Fixtures of the formal tests: a ledger on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.ledger import migrate
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.ledger.acts import Acts


@pytest.fixture
def acts(tmp_path: Path) -> Iterator[Acts]:
    """A pipeline whose lease is held and whose partition ``t`` has started at 0."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    migrate.upgrade(url, create=True)
    with Ledger.open(url) as ledger:
        yield Acts(ledger).start("t")
