"""``airflow ckpt db downgrade`` takes the ledger to an older revision, and ``migrate`` to the newest again."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.integration.airflow.ckpt import Ckpt
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered


@pytest.fixture
def settled(orders: LedgerDriver) -> Ledger:
    """A ledger with something in it, and nobody at work."""
    orders.settle(*(delivered(batch) for batch in orders.send(10)))
    orders.ledger.release(orders.lease)
    return orders.ledger


def test_the_ledger_goes_back_and_comes_up_again_with_what_it_held(ckpt: Ckpt, settled: Ledger) -> None:
    dry = ckpt.json("db", "downgrade", "0001", "--dry-run")
    wet = ckpt.json("db", "downgrade", "0001", "--yes")
    refused = ckpt.refused("status", "orders")
    ckpt.json("db", "migrate")

    assert (dry["before"], dry["revision"]) == (migrate.head(), migrate.head())
    assert dry["undone"] == wet["undone"] != []
    assert wet["revision"] == "0001"
    assert "Run `airflow ckpt db migrate`" in refused
    assert ckpt.json("inspect", "orders", "t")["checkpoint"] == 10


def test_going_back_to_where_it_is_changes_nothing_and_asks_nobody(ckpt: Ckpt, settled: Ledger) -> None:
    assert ckpt.json("db", "downgrade", migrate.head())["undone"] == []


def test_base_drops_the_tables(ckpt: Ckpt, settled: Ledger) -> None:
    settled.close()

    assert ckpt.json("db", "downgrade", "base", "--yes")["revision"] is None
    assert "is at revision none and cannot be downgraded" in ckpt.refused("db", "downgrade", "0001", "--yes")


def test_a_downgrade_must_be_confirmed(ckpt: Ckpt, settled: Ledger) -> None:
    assert "There is no terminal to confirm it. Add --yes if you are sure." in ckpt.refused("db", "downgrade", "0001")
    assert ckpt.json("db", "check")["revision"] == migrate.head()


def test_a_revision_that_was_never_there_is_refused_with_those_that_were(ckpt: Ckpt, settled: Ledger) -> None:
    said = ckpt.refused("db", "downgrade", "9999", "--yes")

    assert f"is at revision {migrate.head()} and cannot be downgraded to '9999'. Possible revisions: " in said
    assert "0001, base" in said


def test_no_ledger_is_taken_from_under_a_run(ckpt: Ckpt, orders: LedgerDriver) -> None:
    assert "a run holds the lease of orders" in ckpt.refused("db", "downgrade", "0001", "--yes")
