"""``airflow ckpt gc`` deletes old history."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.airflow.ckpt import Ckpt
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered


@pytest.fixture
def old(ledger: Ledger) -> LedgerDriver:
    """Pipelines ``orders`` and ``people``, whose attempts and settlements happened months ago."""
    for name in ("people", "orders"):
        driver = LedgerDriver(ledger, pipeline=name).start("t")
        first, second = driver.send(10, 20)
        driver.settle(delivered(second))
        driver.settle(delivered(first))
    return driver


def kinds(ledger: Ledger, pipeline: str) -> list[str]:
    """The audit log, in order."""
    return [event["kind"] for event in ledger.events(pipeline, limit=1000)]


def test_a_dry_run_counts_and_deletes_nothing(ckpt: Ckpt, old: LedgerDriver) -> None:
    before = kinds(old.ledger, "orders")

    said = ckpt.json("gc", "orders", "--keep", "30d", "--dry-run")

    assert (said["keep"], said["dry_run"], list(said["pipelines"])) == ("30d", True, ["orders"])
    assert said["pipelines"]["orders"]["events"] > 0
    assert kinds(old.ledger, "orders") == before


def test_what_is_old_goes_and_the_checkpoint_stays(ckpt: Ckpt, old: LedgerDriver) -> None:
    dry = ckpt.json("gc", "orders", "--dry-run")
    wet = ckpt.json("gc", "orders", "--reason", "quarterly")

    assert wet["pipelines"] == dry["pipelines"]
    newest = ["settled", "collection_begun", "collected"]
    assert kinds(old.ledger, "orders") == ["lease_acquired", *newest]  # what is new, and the newest
    assert old.events("collected")[0]["detail"]["reason"] == "quarterly"
    assert ckpt.json("inspect", "orders", "t")["checkpoint"] == 20
    assert ckpt.json("audit", "orders")["ok"] is True
    assert kinds(old.ledger, "people").count("settled") == 2


def test_all_pipelines_are_collected_one_after_the_other(ckpt: Ckpt, old: LedgerDriver) -> None:
    done = ckpt.run("gc", "--all")

    assert done.status == 0
    assert "Collecting: orders (1 of 2)" in done.err
    assert "Collecting: people (2 of 2)" in done.err
    assert "orders" in done.out
    assert "superseded batches" in done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a pipeline, or add --all"),
        (("orders", "--all"), "name a pipeline, or add --all"),
        (("orders", "--keep", "30"), "--keep 30: not a duration. Write a number and a unit"),
        (("orders", "--keep", "90000w"), "a hundred years at most"),
        (("ordres",), "the ledger knows no pipeline 'ordres'. Did you mean orders?"),
    ],
)
def test_what_to_collect_must_be_said_clearly(
    ckpt: Ckpt, old: LedgerDriver, arguments: tuple[str, ...], says: str
) -> None:
    assert says in ckpt.refused("gc", *arguments)
