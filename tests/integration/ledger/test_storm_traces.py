"""Shortest sequences of commands with which the storm found defects; see ``tests/chaos/ledger_storm.py``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, receipt_of


def test_acts_applied_together_merge_each_receipt_once(driver: LedgerDriver) -> None:
    first, second, third = driver.plan(10, 20, 30)
    driver.settle(*map(delivered, driver.begin([second])))
    for batch in (first, third):
        driver.ledger.action(
            "orders", Action(ActionKind.SKIP, batches=(batch.key,)), actor="a person", reason="not needed"
        )

    results = driver.ledger.apply_stored_actions(driver.lease, now=NOW)

    assert [result.applied for result in results] == [True, True]
    assert sum(batches for *_, batches, _ in driver.receipts()) == 3
    assert sum(records for *_, records in driver.receipts()) == 10


def test_an_act_after_a_rewind_in_the_same_command_counts_nothing_again(driver: LedgerDriver) -> None:
    first, second, third = driver.plan(10, 20, 30)
    driver.settle(*map(delivered, driver.begin([first, third])))
    driver.ledger.action("orders", Action(ActionKind.REWIND, positions={"t": 5}), actor="a person", reason="again")
    driver.ledger.action("orders", Action(ActionKind.DRAIN), actor="a person", reason="enough")

    results = driver.ledger.apply_stored_actions(driver.lease, now=NOW, behind_fence=True)

    assert [result.applied for result in results] == [True, True]
    assert driver.receipts() == [(0, 10, 1, 10), (20, 30, 1, 10)]
    assert driver.partition().committed == 5
    assert second.key.seq not in driver.partition().batches


def test_a_skipped_batch_in_flight_keeps_its_open_attempt(driver: LedgerDriver) -> None:
    [batch] = driver.send(10)

    driver.ledger.act_under_lease(
        driver.lease, Action(ActionKind.SKIP, batches=(batch.key,)), actor="a person", reason="not needed"
    )

    assert driver.ledger.audit("orders")["violations"] == []


def test_skipping_a_batch_twice_that_was_begun_is_one_skip(driver: LedgerDriver) -> None:
    [batch] = driver.send(10)
    skip = Action(ActionKind.SKIP, batches=(batch.key,))
    driver.ledger.act_under_lease(driver.lease, skip, actor="a person", reason="not needed")

    result = driver.ledger.act_under_lease(driver.lease, skip, actor="another", reason="not needed")

    assert result.applied
    assert result.before == result.after


def test_what_was_sent_at_most_once_and_never_confirmed_is_accounted_for(driver: LedgerDriver) -> None:
    driver.begin(driver.plan(10, 20), at_most_once=True)

    assert driver.partition().committed == 20
    assert driver.ledger.audit("orders")["violations"] == []
    assert driver.ledger.audit("orders", quick=True)["violations"] == []
    assert driver.ledger.recovery_plan("orders", settle_lag=timedelta(0)) == []


def test_a_quick_audit_does_not_miss_what_lies_between_unconfirmed_batches(driver: LedgerDriver) -> None:
    batches = driver.begin(driver.plan(10, 20, 30, 40, 50), at_most_once=True)
    driver.settle(delivered(batches[2]), delivered(batches[4]))

    assert driver.ledger.audit("orders", quick=True)["violations"] == []


def test_a_loss_passes_over_receipts_of_a_side_partition_that_was_collected(driver: LedgerDriver) -> None:
    driver.settle(*map(delivered, driver.send(10)))
    replay = Action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),))
    driver.ledger.act_under_lease(driver.lease, replay, actor="a person", reason="once more")
    side = "replay:2:t"
    [again] = driver.begin(driver.plan(10, name=side, start=0))
    driver.settle(delivered(again))
    driver.ledger.garbage_collect(
        "orders", keep=timedelta(0), actor="a person", now=datetime.now(UTC) + timedelta(hours=1)
    )
    assert side not in driver.ledger.partitions("orders")
    [flying] = driver.send(20)

    settlement = driver.lost([flying], receipts=[receipt_of(again)])

    assert settlement.acked == []
    assert driver.batch(BatchKey(1, "t", flying.key.seq)).attempts == 1
