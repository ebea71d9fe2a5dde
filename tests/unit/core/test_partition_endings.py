"""Tests of batches that end without the usual receipt: failures, holds, skips, deaths, imported receipts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.batch import BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.reconcile import import_receipts
from airflow_provider_ckpt.core.tickets import InFlightTicket, PlannedTicket
from tests.unit.core.machines import BROKEN, NOW, ack, begin, begin_all, fail, partition_of, receipt_of

# fail, not_attempted, abandon, fence, cancel


def test_a_failure_waits_counts_and_keeps_its_error() -> None:
    partition = partition_of(10)
    later = NOW + timedelta(seconds=1)

    partition.fail(begin(partition, 0), BROKEN, not_before=later)

    batch = partition.batches[0]
    assert (batch.state, batch.failures, batch.finished, batch.round) == (BatchState.PLANNED, 1, 1, 1)
    assert (batch.not_before, batch.error, batch.epoch) == (later, BROKEN, None)


def test_the_next_round_starts_with_all_its_attempts() -> None:
    partition = partition_of(10)
    fail(partition, begin(partition, 0))
    fail(partition, begin(partition, 0), next_round=True)

    batch = partition.batches[0]
    assert (batch.failures, batch.finished, batch.round, batch.attempts) == (0, 2, 2, 2)


def test_an_outage_of_the_whole_sink_is_not_counted_against_the_batch() -> None:
    partition = partition_of(10)
    fail(partition, begin(partition, 0), counts=False)

    assert (partition.batches[0].failures, partition.batches[0].finished) == (0, 0)


@pytest.mark.parametrize("end", [Partition.not_attempted, Partition.abandon, Partition.fence, Partition.cancel])
def test_an_attempt_that_nobody_saw_fail_is_never_counted(
    end: Callable[[Partition, InFlightTicket], tuple[PlannedTicket, object]],
) -> None:
    partition = partition_of(10)

    end(partition, begin(partition, 0))

    batch = partition.batches[0]
    assert (batch.state, batch.failures, batch.finished, batch.attempts) == (BatchState.PLANNED, 0, 0, 1)
    assert partition.committed == 0


@pytest.mark.parametrize("end", [fail, Partition.not_attempted, Partition.abandon, Partition.fence, Partition.cancel])
def test_only_the_open_attempt_can_be_ended(end: Callable[[Partition, InFlightTicket], object]) -> None:
    partition = partition_of(10)
    old = begin(partition, 0, epoch=1)
    partition.fence(old)
    current = begin(partition, 0, epoch=2)

    with pytest.raises(LedgerStateError, match="attempt 1 of epoch 1 is not the open one"):
        end(partition, old)

    assert partition.in_flight_ticket(0) == current


# hold, release, skip, instruct, deaths


def test_a_held_batch_blocks_until_it_is_released_with_its_attempts_back() -> None:
    partition = partition_of(10, 20)
    begin_all(partition)
    held, _ = partition.hold(fail(partition, partition.in_flight_ticket(0), next_round=True), reason="a person looks")
    ack(partition, 1)
    assert partition.committed == 0

    partition.release(held)

    batch = partition.batches[0]
    assert (batch.state, batch.failures, batch.round) == (BatchState.PLANNED, 0, 1)
    begin(partition, 0)
    ack(partition, 0)
    assert partition.committed == 20


def test_held_transitions_do_not_commit() -> None:
    partition = partition_of(10, 20)
    begin(partition, 1)
    ack(partition, 1)

    held, holding = partition.hold(partition.planned_ticket(0), reason="a person looks")
    _, releasing = partition.release(held)

    assert partition.committed == 0
    assert {event.kind for event in holding + releasing} == {"held", "released"}


def test_a_held_batch_is_not_begun() -> None:
    partition = partition_of(10)
    ticket = partition.planned_ticket(0)
    partition.hold(ticket, reason="a person looks")

    with pytest.raises(LedgerStateError, match="it is held, not planned"):
        partition.begin(ticket, epoch=1, now=NOW)


def test_a_batch_in_flight_cannot_be_held_before_its_attempt_ends() -> None:
    partition = partition_of(10)
    ticket = partition.planned_ticket(0)
    begin(partition, 0)

    with pytest.raises(LedgerStateError, match="it is in_flight, not planned"):
        partition.hold(ticket, reason="a person looks")


def test_a_batch_that_was_never_begun_may_be_skipped_and_lets_the_checkpoint_pass() -> None:
    partition = partition_of(10, 20)

    events = partition.skip(partition.planned_ticket(0), reason="known junk")

    assert [event.kind for event in events] == ["skipped", "checkpoint"]
    assert events[0].detail["reason"] == "known junk"
    assert partition.committed == 10


def test_a_batch_that_was_begun_is_not_skipped_in_the_ledger_alone() -> None:
    partition = partition_of(10)
    back = fail(partition, begin(partition, 0))

    with pytest.raises(LedgerStateError, match="only a receipt ends it"):
        partition.skip(back, reason="known junk")


def test_an_instruction_lets_a_waiting_batch_claim_another_verdict_at_once() -> None:
    partition = partition_of(10)
    back, _ = partition.fail(begin(partition, 0), BROKEN, not_before=NOW + timedelta(hours=1))

    partition.instruct(back, Instruction.REJECT, reason="exhausted")

    assert partition.batches[0].instruction is Instruction.REJECT
    assert begin(partition, 0).attempt == 2


def test_a_batch_whose_executor_died_alone_is_held_at_the_limit() -> None:
    partition = partition_of(10)
    partition.run_alone(partition.abandon(begin(partition, 0))[0])
    assert partition.batches[0].alone

    for expected in (BatchState.PLANNED, BatchState.PLANNED, BatchState.HELD):
        partition.died_alone(begin(partition, 0), limit=3)
        assert partition.batches[0].state is expected

    assert (partition.batches[0].deaths, partition.batches[0].failures) == (3, 0)


# import


def test_a_receipt_that_the_ledger_does_not_know_moves_seq_and_plan_past_it() -> None:
    partition = partition_of(10)
    begin(partition, 0)
    foreign = replace(receipt_of(partition.batches[0]), key=BatchKey(1, "p", 4), range=Range(20, 30))

    import_receipts(partition, [foreign])

    assert (partition.next_seq, partition.planned_end, partition.committed) == (5, 30, 0)
    assert partition.gaps() == [Range(10, 20)]
    partition.plan(Range(10, 20))
    assert partition.gaps() == []
    assert partition.batches[5].range == Range(10, 20)


def test_a_receipt_with_another_range_supersedes_our_batch_and_the_rest_is_planned_again() -> None:
    partition = partition_of(10, 20)
    begin_all(partition)
    restored = replace(receipt_of(partition.batches[0]), range=Range(0, 15))

    import_receipts(partition, [restored])

    assert partition.committed == 15
    assert partition.batches[1].state is BatchState.SUPERSEDED
    assert partition.gaps() == [Range(15, 20)]
    partition.plan(Range(15, 20))
    begin(partition, 2)
    ack(partition, 2)
    assert partition.committed == 20


def test_an_imported_receipt_below_the_checkpoint_is_not_kept() -> None:
    partition = partition_of(10)
    begin(partition, 0)
    old = replace(receipt_of(partition.batches[0]), key=BatchKey(1, "p", 7), range=Range(2, 5))
    ack(partition, 0)

    import_receipts(partition, [old])

    assert (partition.committed, partition.next_seq, partition.gaps()) == (10, 8, [])
    assert partition.batches == {}
