"""Tests of the ledger's record of the sink: its newest fence, and the receipts that must still exist."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink, find_lost_receipts
from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.changed_sink import ExpectedSinkState
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.ledger.ledger_driver import Acts, delivered, failed, receipt_of


def note(acts: Acts) -> Acts:
    """Raise the sink's fence to the lease's epoch."""
    acts.ledger.store_sink_state(acts.lease, ExpectedSinkState(acts.lease.epoch, "table 7", "here"))
    return acts


def expected(acts: Acts) -> list[BatchKey]:
    """Batches whose receipt the sink must hold."""
    return acts.ledger.expected_receipts("orders")


def test_nothing_is_known_of_a_sink_that_no_batch_was_begun_for(acts: Acts) -> None:
    note(acts).plan(10)
    assert acts.ledger.expected_sink_state("orders") == ExpectedSinkState()
    assert expected(acts) == []


def test_what_was_noted_is_known_once_a_batch_was_begun(acts: Acts) -> None:
    note(acts).send(10)
    assert acts.ledger.expected_sink_state("orders") == ExpectedSinkState(
        acts.lease.epoch, "table 7", "here", may_have_rows=True
    )


def test_attempts_that_failed_have_written_nothing_that_a_corrected_sink_would_miss(acts: Acts) -> None:
    (batch,) = note(acts).send(10)
    acts.settle(failed(batch))
    assert not acts.ledger.expected_sink_state("orders").may_have_rows


def test_every_receipt_of_the_newest_epoch_is_expected_below_the_checkpoint_and_beyond(acts: Acts) -> None:
    first, second, third, fourth = note(acts).send(10, 20, 30, 40)
    acts.settle(delivered(first), delivered(second))
    acts.settle(failed(third), delivered(fourth))
    assert [key.seq for key in expected(acts)] == [0, 1, 3]


def test_of_an_older_epoch_the_newest_receipt_is_expected(acts: Acts) -> None:
    note(acts).deliver(10, 20, 30)
    note(acts.again()).reconcile()
    assert [key.seq for key in expected(acts)] == [2]
    acts.deliver(40)
    assert [key.seq for key in expected(acts)] == [3]


def test_receipts_that_a_run_finds_of_the_run_before_are_not_taken_for_its_own(acts: Acts) -> None:
    first, second = note(acts).send(10, 20)
    receipts = [outcome.receipt for outcome in (delivered(first), delivered(second)) if outcome.receipt]
    note(acts.again()).reconcile(*receipts)
    assert [key.seq for key in expected(acts)] == [1]


def test_after_a_rewind_nothing_of_the_generation_before_is_expected_once_the_new_one_has_receipts(acts: Acts) -> None:
    note(acts).deliver(10, 20)
    note(acts.again()).action(ActionKind.REWIND, positions={"t": 10})
    assert [(key.generation, key.seq) for key in expected(acts)] == [(1, 1)]
    acts.deliver(20)
    assert [(key.generation, key.seq) for key in expected(acts)] == [(2, 0)]


def test_collecting_history_leaves_what_the_sink_must_hold(acts: Acts) -> None:
    note(acts).deliver(10, 20)
    before = expected(acts)
    acts.ledger.garbage_collect("orders", keep=timedelta(0), actor="ann", now=acts.now + timedelta(days=900))
    assert expected(acts) == before != []


def test_after_adopting_another_ledgers_receipts_none_of_the_old_ones_is_expected(acts: Acts) -> None:
    note(acts).deliver(10)
    acts.ledger.adopt(acts.lease, "other", actor="ann", reason="lost")
    assert expected(acts) == []
    assert acts.ledger.expected_sink_state("orders").epoch is None


def test_a_batch_that_was_skipped_before_it_was_begun_has_no_receipt_to_expect(acts: Acts) -> None:
    (batch,) = note(acts).plan(10)
    acts.action(ActionKind.SKIP, batch)
    acts.deliver(20)
    assert [key.seq for key in expected(acts)] == [1]


@pytest.mark.parametrize("kind", [ActionKind.REPLAY, ActionKind.RECOVER])
def test_a_side_partition_that_has_ended_is_not_asked_for_in_every_run_for_ever(acts: Acts, kind: ActionKind) -> None:
    note(acts).deliver(10, 20)
    acts.action(kind, ranges=[("t", Range(0, 20))])
    (side,) = set(acts.ledger.partitions("orders")) - {"t"}

    acts.deliver(10, name=side)
    note(acts.again()).reconcile()
    of_side = [key.seq for key in expected(acts) if key.partition == side]
    assert of_side == [0]  # it goes on: its newest receipt of an older epoch

    for batch in acts.send(20, name=side):
        outcome = delivered(batch)
        acts.settle(replace(outcome, receipt=receipt_of(batch, epoch=acts.lease.epoch)))
    of_side = [key.seq for key in expected(acts) if key.partition == side]
    assert of_side == [1]  # it has ended in the newest epoch, whose last commit this is

    note(acts.again()).reconcile()
    assert [key.partition for key in expected(acts)] == ["t"]


@pytest.mark.parametrize("kind", [ActionKind.KEEP_SINK, ActionKind.MOVE])
def test_a_receipt_beyond_the_checkpoint_that_was_accepted_as_lost_is_expected_no_more(
    acts: Acts, kind: ActionKind
) -> None:
    first, second, third, fourth = note(acts).send(10, 20, 30, 40)
    acts.settle(delivered(first), failed(second), delivered(third), delivered(fourth))
    known = acts.ledger.ledger_snapshot("orders")
    lost = find_lost_receipts(known.passed, known.batches.values(), [receipt_of(first), receipt_of(third)])
    assert [key.seq for key in expected(acts)] == [0, 2, 3]

    acts.ledger.act_under_lease(acts.lease, Action(kind), actor="ann", reason="restored", accepted=AcceptedSink(lost))

    assert [key.seq for key in expected(acts)] == [2]
