"""Tests of the inspection of a batch, a partition, and all unresolved batches; and of dry runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.ledger.ledger_driver import UNNAMED, LedgerDriver, delivered, failed


def test_a_batch_is_seen_with_its_attempts_dead_letters_and_events(driver: LedgerDriver) -> None:
    first, second = driver.send(10, 20)
    driver.settle(failed(first, UNNAMED), delivered(second, dead=1, dead_letters={"Serialization": 1}))

    one, two = (driver.ledger.inspect("orders", batch.key) for batch in (first, second))

    assert (one["state"], one["error"]["type"], one["receipt"]) == ("planned", "Generic", None)
    assert [attempt["outcome"] for attempt in one["attempt_history"]] == ["failed"]
    assert (two["state"], two["receipt"]["range"], two["dead_letters"]) == ("delivered", [10, 20], {"Serialization": 1})


def test_a_partition_is_seen_with_its_newest_receipts(driver: LedgerDriver) -> None:
    driver.settle(*(delivered(batch) for batch in driver.send(*range(1, 300))))
    driver.plan(400)

    seen = driver.ledger.inspect("orders", "t")

    assert (seen["checkpoint"], seen["records"]["batches"]) == (299, 299)
    assert seen["receipts"][-1]["to"] == 299
    assert len(seen["receipts"]) <= 100
    assert [batch["range"] for batch in seen["batches"]] == [[299, 400]]


def test_a_rewound_partition_is_seen_with_its_generations(driver: LedgerDriver) -> None:
    driver.settle(*(delivered(batch) for batch in driver.send(10, 20)))
    driver.ledger.act_under_lease(
        driver.lease, Action(ActionKind.REWIND, positions={"t": 10}), actor="ann", reason="wrong rates"
    )

    seen = driver.ledger.inspect("orders", "t")
    old = driver.ledger.inspect("orders", BatchKey(1, "t", 1))

    assert [(each["generation"], each["base"], each["checkpoint"]) for each in seen["generations"]] == [
        (1, 0, 20),
        (2, 10, None),
    ]
    assert (old["state"], old["remark"]) == (None, "its generation has ended; the partition is in 2 now")


def test_a_gap_that_belongs_to_no_batch_is_seen(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20)
    receipt = delivered(batches[0]).receipt
    assert receipt is not None
    driver.again()
    driver.reconcile(replace(receipt, range=Range(0, 5)))

    seen = driver.ledger.inspect("orders")

    assert seen["gaps"] == {"t": [[5, 10]]}
    assert [batch["batch"] for batch in seen["batches"]] == ["t#1"]


def test_what_was_never_numbered_is_refused(driver: LedgerDriver) -> None:
    driver.plan(10)

    for key in (BatchKey(1, "t", 1), BatchKey(2, "t", 0)):
        with pytest.raises(LedgerStateError, match="there is no such batch"):
            driver.ledger.inspect("orders", key)
    with pytest.raises(LedgerStateError, match=r"there is no partition 'u'\. Known: t\."):
        driver.ledger.inspect("orders", "u")


@pytest.mark.parametrize("kind", [ActionKind.DRAIN, ActionKind.FORCE_STOP, ActionKind.RELEASE])
def test_a_dry_run_leaves_no_trace_whoever_holds_the_lease(driver: LedgerDriver, kind: ActionKind) -> None:
    driver.send(10)
    before = driver.ledger.status("orders")

    result = driver.ledger.action("orders", Action(kind), actor="ann", dry_run=True)

    assert (result.applied, result.intent) == (False, None)
    assert driver.ledger.status("orders") == before
    driver.ledger.renew(driver.lease)


def test_a_dry_run_says_what_would_be_after(driver: LedgerDriver) -> None:
    driver.send(10)

    result = driver.ledger.action("orders", Action(ActionKind.FORCE_STOP), actor="ann", dry_run=True)

    assert (result.before["phase"], result.after["phase"]) == ("running", "stopped")


def test_a_dry_run_refuses_what_does_not_fit(driver: LedgerDriver) -> None:
    with pytest.raises(LedgerStateError, match="it is running"):
        driver.ledger.action("orders", Action(ActionKind.STOP), actor="ann", dry_run=True)
