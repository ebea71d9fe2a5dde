"""A run first makes the ledger agree with the sink, even a ledger that was restored from a backup."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_ckpt.connectors.source_protocol import Plan, PlannedBatch
from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from tests.integration.ledger.ledger_driver import NOW, Acts, delivered, failed, receipt_of


def a_receipt(seq: int, start: int, end: int, *, generation: int = 1, name: str = "t") -> Receipt:
    """A receipt that the sink holds, of a timeline that the ledger has forgotten."""
    counts = Counts(end - start, end - start)
    return Receipt(BatchKey(generation, name, seq), Range(start, end), Verdict.DELIVERED, 1, 1, counts, NOW)


def test_after_a_crash_receipts_settle_and_the_rest_is_fenced(acts: Acts) -> None:
    batches = acts.send(10, 20, 30)
    found = acts.again("second").reconcile(receipt_of(batches[0]), receipt_of(batches[2]))
    assert [receipt.key.seq for receipt in found.acked] == [0, 2]
    assert (found.fenced, found.imported, found.counts.delivered) == ([batches[1].key], [], 20)
    assert acts.states() == {1: BatchState.PLANNED, 2: BatchState.DELIVERED}
    assert acts.partition().committed == 10


def test_a_fenced_batch_has_not_used_up_an_attempt(acts: Acts) -> None:
    (batch,) = acts.send(10)
    acts.again("second").reconcile()
    assert (acts.batch(batch.key).failures, acts.batch(batch.key).attempts) == (0, 1)


def test_attempts_of_the_runs_own_epoch_stay_open(acts: Acts) -> None:
    acts.send(10)
    assert acts.reconcile().fenced == []
    assert acts.states() == {0: BatchState.IN_FLIGHT}


def test_a_batch_that_waits_or_is_held_is_settled_by_its_receipt(acts: Acts) -> None:
    (batch,) = acts.send(10)
    acts.settle(failed(batch))
    assert len(acts.again().reconcile(receipt_of(batch)).acked) == 1
    assert acts.partition().committed == 10


def test_reconciling_twice_finds_nothing_new(acts: Acts) -> None:
    batches = acts.send(10, 20, 30)
    receipts = [receipt_of(batches[0]), receipt_of(batches[2])]
    acts.again().reconcile(*receipts)
    found = acts.again().reconcile(*receipts)
    assert (found.acked, found.imported, found.fenced) == ([], [], [])
    assert acts.receipts() == [(0, 10, 1, 10)]


def test_an_empty_restored_ledger_learns_all_from_the_sink(acts: Acts) -> None:
    found = acts.reconcile(*(a_receipt(seq, seq * 10, seq * 10 + 10) for seq in range(5)))
    assert len(found.imported) == 5
    assert (acts.partition().committed, acts.partition().next_seq, acts.states()) == (50, 5, {})
    assert acts.receipts() == [(0, 50, 5, 50)]
    assert acts.plan(60)[0].key.seq == 5


def test_a_ledger_restored_to_before_begin_imports_receipts_with_the_same_ranges(acts: Acts) -> None:
    first, _ = acts.plan(10, 20)
    found = acts.again().reconcile(receipt_of(first))
    assert [receipt.key for receipt in found.imported] == [first.key]
    assert (acts.partition().committed, acts.states()) == (10, {1: BatchState.PLANNED})


def test_a_receipt_with_another_range_supersedes_ours_and_the_gap_is_planned_again(acts: Acts) -> None:
    acts.settle(*map(delivered, acts.send(10)))
    acts.plan(30, 60)
    found = acts.again().reconcile(a_receipt(1, 10, 25), a_receipt(2, 25, 40))
    assert len(found.imported) == 2
    partition = acts.partition()
    assert (partition.committed, partition.next_seq, partition.planned_end) == (40, 3, 60)
    assert partition.gaps() == [Range(40, 60)]
    assert [event["seq"] for event in acts.events("superseded")] == [1, 2]
    (batch,) = acts.ledger.plan(acts.lease, Plan([PlannedBatch("t", Range(40, 60))]))
    assert batch.key.seq == 3
    acts.settle(*map(delivered, acts.begin([batch])))
    assert (acts.partition().committed, acts.receipts()) == (60, [(0, 60, 4, 60)])


def test_a_gap_before_an_imported_receipt_holds_the_checkpoint_until_it_is_done(acts: Acts) -> None:
    acts.plan(30)
    acts.again().reconcile(a_receipt(0, 20, 30))
    assert (acts.partition().committed, acts.partition().gaps()) == (0, [Range(0, 20)])
    acts.settle(*map(delivered, acts.begin(acts.plan(20, start=0))))
    assert acts.partition().committed == 30


def test_an_attempt_whose_batch_is_superseded_is_closed(acts: Acts) -> None:
    (batch,) = acts.send(10)
    acts.again().reconcile(a_receipt(0, 0, 5))
    assert (acts.partition().committed, acts.partition().gaps()) == (5, [Range(5, 10)])
    assert acts.settle(failed(batch)).decisions == {}


def test_receipts_known_by_their_own_batches_never_fall_to_an_import(acts: Acts) -> None:
    first, second = acts.send(10, 20)
    found = acts.again().reconcile(a_receipt(7, 20, 30), receipt_of(second), receipt_of(first))
    assert (len(found.acked), len(found.imported)) == (2, 1)
    assert (acts.partition().committed, acts.partition().next_seq) == (30, 8)


def test_receipts_of_a_generation_that_a_rewind_ended_mean_nothing(acts: Acts) -> None:
    found = acts.reconcile(a_receipt(0, 0, 10, generation=0))
    assert (found.acked, found.imported, acts.partition().committed) == ([], [], 0)


def test_a_forgotten_rewind_is_made_up_for_from_its_receipts(acts: Acts) -> None:
    """Up to 10 in this ledger; then in one that was lost up to 30, back to 20 as generation 2, and to 40."""
    acts.settle(*map(delivered, acts.send(10)))

    found = acts.again().reconcile(
        a_receipt(1, 10, 30), a_receipt(0, 20, 30, generation=2), a_receipt(1, 30, 40, generation=2)
    )

    assert [str(receipt.key) for receipt in found.imported] == ["t#1", "t#0@2", "t#1@2"]
    assert found.forgotten_rewinds == {"t": (2, 20)}
    assert (acts.partition().generation, acts.partition().base, acts.partition().committed) == (2, 20, 40)
    assert acts.receipts() == [(0, 10, 1, 10), (10, 30, 1, 20), (20, 40, 2, 20)]
    history = acts.ledger.inspect("orders", "t")["generations"]
    assert [(item["generation"], item["base"], item["checkpoint"]) for item in history] == [(1, 0, 30), (2, 20, None)]
    assert acts.ledger.audit("orders")["violations"] == []
    assert acts.action(ActionKind.REWIND, positions={"t": 30}).after["checkpoint"] == {"t": [3, 30]}


def test_two_forgotten_rewinds_are_made_up_for(acts: Acts) -> None:
    (flying, *_) = acts.send(10, 30)

    found = acts.again().reconcile(
        receipt_of(flying), a_receipt(0, 5, 25, generation=2), a_receipt(0, 20, 50, generation=4)
    )

    assert [receipt.key for receipt in found.acked] == [flying.key]
    assert (acts.partition().generation, acts.partition().base, acts.partition().committed) == (4, 20, 50)
    assert acts.receipts() == [(0, 10, 1, 10), (5, 25, 1, 20), (20, 50, 1, 30)]
    assert acts.ledger.audit("orders")["violations"] == []
    assert [batch.key.generation for batch in acts.send(60)] == [4]


def test_a_replay_takes_no_number_that_the_sink_has_seen(acts: Acts) -> None:
    """A ledger that has forgotten ``replay:2:t``, whose receipts are in the sink."""
    acts.settle(*map(delivered, acts.send(10)))
    acts.again().reconcile(a_receipt(0, 0, 10, generation=2, name="replay:2:t"))

    acts.action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),))

    assert set(acts.ledger.partitions("orders")) == {"t", "replay:3:t"}


@pytest.mark.parametrize("kind", [ActionKind.REPLAY, ActionKind.RECOVER])
def test_what_numbers_a_generation_is_never_applied_by_a_person_alone(acts: Acts, kind: ActionKind) -> None:
    acts.settle(*map(delivered, acts.send(10)))
    acts.ledger.release(acts.lease)

    result = acts.ledger.action("orders", Action(kind, ranges=(("t", Range(0, 10)),)), actor="ann")
    acts.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann")

    assert not result.applied
    assert [intent.action.kind for intent in acts.ledger.stored_actions("orders")] == [kind]


def test_receipts_of_a_partition_that_was_never_started_are_refused(acts: Acts) -> None:
    with pytest.raises(LedgerStateError, match="never started"):
        acts.reconcile(a_receipt(0, 0, 10, name="unheard of"))


def test_a_settled_receipt_with_another_range_is_imported_too(acts: Acts) -> None:
    (batch,) = acts.send(10)
    outcome = delivered(batch)
    assert outcome.receipt is not None
    found = acts.settle(replace(outcome, receipt=a_receipt(0, 0, 4)))
    assert len(found.acked) == 1
    assert (acts.partition().committed, acts.partition().gaps()) == (4, [Range(4, 10)])


def test_the_dead_letter_index_is_rebuilt_from_receipts(acts: Acts) -> None:
    (batch,) = acts.send(10)
    acts.again().reconcile(receipt_of(batch, dead=4))
    assert acts.ledger.status("orders")["dead_letters"] == {"unknown": 4}
