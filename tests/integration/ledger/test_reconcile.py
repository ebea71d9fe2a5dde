"""A run first reconciles the ledger with the sink, even a ledger that was restored from a backup."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, failed, receipt_of


def a_receipt(seq: int, start: int, end: int, *, generation: int = 1, name: str = "t") -> Receipt:
    """A receipt that the sink holds, of a timeline that the ledger has forgotten."""
    counts = Counts(end - start, end - start)
    return Receipt(BatchKey(generation, name, seq), Range(start, end), Verdict.DELIVERED, 1, 1, counts, NOW)


def test_after_a_crash_receipts_settle_and_the_rest_is_fenced(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30)
    found = driver.again("second").reconcile(receipt_of(batches[0]), receipt_of(batches[2]))
    assert [receipt.key.seq for receipt in found.acked] == [0, 2]
    assert (found.fenced, found.imported, found.counts.delivered) == ([batches[1].key], [], 20)
    assert driver.states() == {1: BatchState.PLANNED, 2: BatchState.DELIVERED}
    assert driver.partition().committed == 10


def test_a_fenced_batch_has_not_used_up_an_attempt(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.again("second").reconcile()
    assert (driver.batch(batch.key).failures, driver.batch(batch.key).attempts) == (0, 1)


def test_attempts_of_the_runs_own_epoch_stay_open(driver: LedgerDriver) -> None:
    driver.send(10)
    assert driver.reconcile().fenced == []
    assert driver.states() == {0: BatchState.IN_FLIGHT}


def test_a_batch_that_waits_or_is_held_is_settled_by_its_receipt(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(failed(batch))
    assert len(driver.again().reconcile(receipt_of(batch)).acked) == 1
    assert driver.partition().committed == 10


def test_reconciling_twice_finds_nothing_new(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30)
    receipts = [receipt_of(batches[0]), receipt_of(batches[2])]
    driver.again().reconcile(*receipts)
    found = driver.again().reconcile(*receipts)
    assert (found.acked, found.imported, found.fenced) == ([], [], [])
    assert driver.receipts() == [(0, 10, 1, 10)]


def test_an_empty_restored_ledger_learns_all_from_the_sink(driver: LedgerDriver) -> None:
    found = driver.reconcile(*(a_receipt(seq, seq * 10, seq * 10 + 10) for seq in range(5)))
    assert len(found.imported) == 5
    assert (driver.partition().committed, driver.partition().next_seq, driver.states()) == (50, 5, {})
    assert driver.receipts() == [(0, 50, 5, 50)]
    assert driver.plan(60)[0].key.seq == 5


def test_a_ledger_restored_to_before_begin_imports_receipts_with_the_same_ranges(driver: LedgerDriver) -> None:
    first, _ = driver.plan(10, 20)
    found = driver.again().reconcile(receipt_of(first))
    assert [receipt.key for receipt in found.imported] == [first.key]
    assert (driver.partition().committed, driver.states()) == (10, {1: BatchState.PLANNED})


def test_a_receipt_with_another_range_supersedes_ours_and_the_gap_is_planned_again(driver: LedgerDriver) -> None:
    driver.settle(*map(delivered, driver.send(10)))
    driver.plan(30, 60)
    found = driver.again().reconcile(a_receipt(1, 10, 25), a_receipt(2, 25, 40))
    assert len(found.imported) == 2
    partition = driver.partition()
    assert (partition.committed, partition.next_seq, partition.planned_end) == (40, 3, 60)
    assert partition.gaps() == [Range(40, 60)]
    assert [event["seq"] for event in driver.events("superseded")] == [1, 2]
    (batch,) = driver.ledger.plan(driver.lease, Plan([PlannedBatch("t", Range(40, 60))]))
    assert batch.key.seq == 3
    driver.settle(*map(delivered, driver.begin([batch])))
    assert (driver.partition().committed, driver.receipts()) == (60, [(0, 60, 4, 60)])


def test_a_gap_before_an_imported_receipt_holds_the_checkpoint_until_it_is_done(driver: LedgerDriver) -> None:
    driver.plan(30)
    driver.again().reconcile(a_receipt(0, 20, 30))
    assert (driver.partition().committed, driver.partition().gaps()) == (0, [Range(0, 20)])
    driver.settle(*map(delivered, driver.begin(driver.plan(20, start=0))))
    assert driver.partition().committed == 30


def test_an_attempt_whose_batch_is_superseded_is_closed(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.again().reconcile(a_receipt(0, 0, 5))
    assert (driver.partition().committed, driver.partition().gaps()) == (5, [Range(5, 10)])
    assert driver.settle(failed(batch)).decisions == {}


def test_receipts_known_by_their_own_batches_never_fall_to_an_import(driver: LedgerDriver) -> None:
    first, second = driver.send(10, 20)
    found = driver.again().reconcile(a_receipt(7, 20, 30), receipt_of(second), receipt_of(first))
    assert (len(found.acked), len(found.imported)) == (2, 1)
    assert (driver.partition().committed, driver.partition().next_seq) == (30, 8)


def test_receipts_of_a_generation_that_a_rewind_ended_mean_nothing(driver: LedgerDriver) -> None:
    found = driver.reconcile(a_receipt(0, 0, 10, generation=0))
    assert (found.acked, found.imported, driver.partition().committed) == ([], [], 0)


def test_a_forgotten_rewind_is_made_up_for_from_its_receipts(driver: LedgerDriver) -> None:
    """Up to 10 in this ledger; then in one that was lost up to 30, back to 20 as generation 2, and to 40."""
    driver.settle(*map(delivered, driver.send(10)))

    found = driver.again().reconcile(
        a_receipt(1, 10, 30), a_receipt(0, 20, 30, generation=2), a_receipt(1, 30, 40, generation=2)
    )

    assert [str(receipt.key) for receipt in found.imported] == ["t#1", "t#0@2", "t#1@2"]
    assert found.repeated_rewinds == {"t": (2, 20)}
    assert (driver.partition().generation, driver.partition().base, driver.partition().committed) == (2, 20, 40)
    assert driver.receipts() == [(0, 10, 1, 10), (10, 30, 1, 20), (20, 40, 2, 20)]
    history = driver.ledger.inspect("orders", "t")["generations"]
    assert [(item["generation"], item["base"], item["checkpoint"]) for item in history] == [(1, 0, 30), (2, 20, None)]
    assert driver.ledger.audit("orders")["violations"] == []
    assert driver.action(ActionKind.REWIND, positions={"t": 30}).after["checkpoint"] == {"t": [3, 30]}


def test_two_repeated_rewinds_are_made_up_for(driver: LedgerDriver) -> None:
    (flying, *_) = driver.send(10, 30)

    found = driver.again().reconcile(
        receipt_of(flying), a_receipt(0, 5, 25, generation=2), a_receipt(0, 20, 50, generation=4)
    )

    assert [receipt.key for receipt in found.acked] == [flying.key]
    assert (driver.partition().generation, driver.partition().base, driver.partition().committed) == (4, 20, 50)
    assert driver.receipts() == [(0, 10, 1, 10), (5, 25, 1, 20), (20, 50, 1, 30)]
    assert driver.ledger.audit("orders")["violations"] == []
    assert [batch.key.generation for batch in driver.send(60)] == [4]


def test_a_replay_takes_no_number_that_the_sink_has_seen(driver: LedgerDriver) -> None:
    """A ledger that has forgotten ``replay:2:t``, whose receipts are in the sink."""
    driver.settle(*map(delivered, driver.send(10)))
    driver.again().reconcile(a_receipt(0, 0, 10, generation=2, name="replay:2:t"))

    driver.action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),))

    assert set(driver.ledger.partitions("orders")) == {"t", "replay:3:t"}


@pytest.mark.parametrize("kind", [ActionKind.REPLAY, ActionKind.RECOVER])
def test_what_numbers_a_generation_is_never_applied_by_a_person_alone(driver: LedgerDriver, kind: ActionKind) -> None:
    driver.settle(*map(delivered, driver.send(10)))
    driver.ledger.release(driver.lease)

    result = driver.ledger.action("orders", Action(kind, ranges=(("t", Range(0, 10)),)), actor="ann")
    driver.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann")

    assert not result.applied
    assert [intent.action.kind for intent in driver.ledger.stored_actions("orders")] == [kind]


def test_receipts_of_a_partition_that_was_never_started_are_refused(driver: LedgerDriver) -> None:
    with pytest.raises(LedgerStateError, match="never started"):
        driver.reconcile(a_receipt(0, 0, 10, name="unheard of"))


def test_a_settled_receipt_with_another_range_is_imported_too(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    outcome = delivered(batch)
    assert outcome.receipt is not None
    found = driver.settle(replace(outcome, receipt=a_receipt(0, 0, 4)))
    assert len(found.acked) == 1
    assert (driver.partition().committed, driver.partition().gaps()) == (4, [Range(4, 10)])


def test_the_dead_letter_index_is_rebuilt_from_receipts(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.again().reconcile(receipt_of(batch, dead=4))
    assert driver.ledger.status("orders")["dead_letters"] == {"unknown": 4}
