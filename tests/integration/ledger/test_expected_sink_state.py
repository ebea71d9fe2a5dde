"""Tests of the ledger's record of the sink: its newest fence, and the receipts that must still exist."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink, find_lost_receipts
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered, failed, receipt_of


def note(driver: LedgerDriver) -> LedgerDriver:
    """Raise the sink's fence to the lease's epoch."""
    driver.ledger.store_sink_state(driver.lease, ExpectedSinkState(driver.lease.epoch, "table 7", "here"))
    return driver


def expected(driver: LedgerDriver) -> list[BatchKey]:
    """Batches whose receipt the sink must hold."""
    return driver.ledger.expected_sink("orders")[1]


def test_nothing_is_known_of_a_sink_that_no_batch_was_begun_for(driver: LedgerDriver) -> None:
    note(driver).plan(10)
    assert driver.ledger.expected_sink_state("orders") == ExpectedSinkState()
    assert expected(driver) == []


def test_what_was_noted_is_known_once_a_batch_was_begun(driver: LedgerDriver) -> None:
    note(driver).send(10)
    assert driver.ledger.expected_sink_state("orders") == ExpectedSinkState(
        driver.lease.epoch, "table 7", "here", may_have_rows=True
    )


def test_attempts_that_failed_have_written_nothing_that_a_corrected_sink_would_miss(driver: LedgerDriver) -> None:
    (batch,) = note(driver).send(10)
    driver.settle(failed(batch))
    assert not driver.ledger.expected_sink_state("orders").may_have_rows


def test_every_receipt_of_the_newest_epoch_is_expected_below_the_checkpoint_and_beyond(driver: LedgerDriver) -> None:
    first, second, third, fourth = note(driver).send(10, 20, 30, 40)
    driver.settle(delivered(first), delivered(second))
    driver.settle(failed(third), delivered(fourth))
    assert [key.seq for key in expected(driver)] == [0, 1, 3]


def test_of_an_older_epoch_the_newest_receipt_is_expected(driver: LedgerDriver) -> None:
    note(driver).deliver(10, 20, 30)
    note(driver.again()).reconcile()
    assert [key.seq for key in expected(driver)] == [2]
    driver.deliver(40)
    assert [key.seq for key in expected(driver)] == [3]


def test_receipts_that_a_run_finds_of_the_run_before_are_not_taken_for_its_own(driver: LedgerDriver) -> None:
    first, second = note(driver).send(10, 20)
    receipts = [outcome.receipt for outcome in (delivered(first), delivered(second)) if outcome.receipt]
    note(driver.again()).reconcile(*receipts)
    assert [key.seq for key in expected(driver)] == [1]


def test_after_a_rewind_nothing_of_the_generation_before_is_expected_once_the_new_one_has_receipts(
    driver: LedgerDriver,
) -> None:
    note(driver).deliver(10, 20)
    note(driver.again()).action(ActionKind.REWIND, positions={"t": 10})
    assert [(key.generation, key.seq) for key in expected(driver)] == [(1, 1)]
    driver.deliver(20)
    assert [(key.generation, key.seq) for key in expected(driver)] == [(2, 0)]


def test_collecting_history_leaves_what_the_sink_must_hold(driver: LedgerDriver) -> None:
    note(driver).deliver(10, 20)
    before = expected(driver)
    driver.ledger.garbage_collect("orders", keep=timedelta(0), actor="ann", now=driver.now + timedelta(days=900))
    assert expected(driver) == before != []


def test_after_adopting_another_ledgers_receipts_none_of_the_old_ones_is_expected(driver: LedgerDriver) -> None:
    note(driver).deliver(10)
    driver.ledger.adopt(driver.lease, "other", actor="ann", reason="lost")
    assert expected(driver) == []
    assert driver.ledger.expected_sink_state("orders").epoch is None


def test_a_batch_that_was_skipped_before_it_was_begun_has_no_receipt_to_expect(driver: LedgerDriver) -> None:
    (batch,) = note(driver).plan(10)
    driver.action(ActionKind.SKIP, batch)
    driver.deliver(20)
    assert [key.seq for key in expected(driver)] == [1]


@pytest.mark.parametrize("kind", [ActionKind.REPLAY, ActionKind.RECOVER])
def test_a_side_partition_that_has_ended_is_not_asked_for_in_every_run_for_ever(
    driver: LedgerDriver, kind: ActionKind
) -> None:
    note(driver).deliver(10, 20)
    driver.action(kind, ranges=[("t", Range(0, 20))])
    (side,) = set(driver.ledger.partitions("orders")) - {"t"}

    driver.deliver(10, name=side)
    note(driver.again()).reconcile()
    of_side = [key.seq for key in expected(driver) if key.partition == side]
    assert of_side == [0]  # it goes on: its newest receipt of an older epoch

    for batch in driver.send(20, name=side):
        outcome = delivered(batch)
        driver.settle(replace(outcome, receipt=receipt_of(batch, epoch=driver.lease.epoch)))
    of_side = [key.seq for key in expected(driver) if key.partition == side]
    assert of_side == [1]  # it has ended in the newest epoch, whose last commit this is

    note(driver.again()).reconcile()
    assert [key.partition for key in expected(driver)] == ["t"]


@pytest.mark.parametrize("kind", [ActionKind.KEEP_SINK, ActionKind.MOVE])
def test_a_receipt_beyond_the_checkpoint_that_was_accepted_as_lost_is_expected_no_more(
    driver: LedgerDriver, kind: ActionKind
) -> None:
    first, second, third, fourth = note(driver).send(10, 20, 30, 40)
    driver.settle(delivered(first), failed(second), delivered(third), delivered(fourth))
    known = driver.ledger.ledger_snapshot("orders")
    lost = find_lost_receipts(known.passed, known.batches.values(), [receipt_of(first), receipt_of(third)])
    assert [key.seq for key in expected(driver)] == [0, 2, 3]

    driver.ledger.act_under_lease(
        driver.lease, Action(kind), actor="ann", reason="restored", accepted=AcceptedSink(lost)
    )

    assert [key.seq for key in expected(driver)] == [2]
