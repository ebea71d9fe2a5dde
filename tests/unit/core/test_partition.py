"""Plan, begin and acknowledge batches: the resulting states, and the refusals."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.tickets import InFlightTicket
from tests.unit.core.machines import BROKEN, NOW, ack, begin, begin_all, fail, partition_of, receipt_of

# plan


def test_batches_are_numbered_and_continue_each_other() -> None:
    partition = partition_of(10, 25)

    assert [(str(b.key), b.range, b.state) for b in partition.batches.values()] == [
        ("p#0", Range(0, 10), BatchState.PLANNED),
        ("p#1", Range(10, 25), BatchState.PLANNED),
    ]
    assert partition.planned_end == 25


@pytest.mark.parametrize("span", [Range(11, 20), Range(5, 12), Range(0, 10)])
def test_a_plan_that_leaves_a_gap_or_overlaps_is_refused(span: Range) -> None:
    with pytest.raises(LedgerStateError, match="ends at 10"):
        partition_of(10).plan(span)


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.STOPPED])
def test_nothing_is_planned_or_begun_while_draining_or_stopped(phase: Phase) -> None:
    partition = partition_of(10)
    partition.phase = phase

    with pytest.raises(LedgerStateError, match=f"nothing is planned while {phase}"):
        partition.plan(Range(10, 20))
    with pytest.raises(LedgerStateError, match=f"nothing is started while {phase}"):
        begin(partition, 0)


def test_what_is_in_flight_ends_while_draining() -> None:
    partition = partition_of(10)
    begin(partition, 0)
    partition.phase = Phase.DRAINING

    ack(partition, 0)

    assert partition.committed == 10


# begin


def test_an_attempt_opens_with_its_number_and_epoch() -> None:
    partition = partition_of(10)

    ticket = begin(partition, 0, epoch=7)

    assert ticket == InFlightTicket(BatchKey(1, "p", 0), attempt=1, epoch=7)
    assert partition.in_flight_ticket(0) == ticket
    assert partition.in_flight.keys() == {0}


def test_a_batch_is_not_begun_before_its_time() -> None:
    partition = partition_of(10)
    partition.fail(begin(partition, 0), BROKEN, not_before=NOW + timedelta(seconds=5))

    with pytest.raises(LedgerStateError, match="not to be started before"):
        partition.begin(partition.planned_ticket(0), epoch=1, now=NOW + timedelta(seconds=4))
    partition.begin(partition.planned_ticket(0), epoch=1, now=NOW + timedelta(seconds=5))

    assert partition.batches[0].attempts == 2


def test_a_batch_is_not_begun_twice() -> None:
    partition = partition_of(10)
    ticket = partition.planned_ticket(0)
    begin(partition, 0)

    with pytest.raises(LedgerStateError, match="it is in_flight, not planned"):
        partition.begin(ticket, epoch=1, now=NOW)


def test_at_most_once_begin_alone_resolves_the_batch() -> None:
    partition = partition_of(10, 20)

    partition.begin(partition.planned_ticket(0), epoch=1, now=NOW, at_most_once=True)

    assert partition.committed == 10
    assert partition.blocking.keys() == {1}


def test_at_most_once_a_batch_that_was_sent_is_never_sent_again() -> None:
    partition = partition_of(10, 20)
    ticket, _ = partition.begin(partition.planned_ticket(1), epoch=1, now=NOW, at_most_once=True)

    with pytest.raises(LedgerStateError, match="it is sent, not in_flight"):
        fail(partition, ticket)
    with pytest.raises(LedgerStateError, match="it is sent, not planned"):
        partition.planned_ticket(1)


# ack


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Verdict.DELIVERED, BatchState.DELIVERED),
        (Verdict.REJECTED, BatchState.REJECTED),
        (Verdict.VOID, BatchState.SKIPPED),
    ],
)
def test_a_receipt_resolves_the_batch_by_its_verdict(verdict: Verdict, state: BatchState) -> None:
    partition = partition_of(10, 20)
    begin_all(partition)

    ack(partition, 1, verdict)

    assert partition.batches[1].state is state
    assert partition.pending_acks.keys() == {1}
    assert partition.committed == 0


def test_a_receipt_after_a_failure_report_counts_since_a_failure_report_means_unknown() -> None:
    partition = partition_of(10)
    fail(partition, begin(partition, 0))

    assert ack(partition, 0) == ["acked", "checkpoint"]
    assert partition.committed == 10


def test_a_receipt_resolves_a_batch_that_is_held_after_an_attempt() -> None:
    partition = partition_of(10)
    partition.hold(fail(partition, begin(partition, 0)), reason="exhausted")

    ack(partition, 0)

    assert partition.committed == 10


def test_a_second_receipt_changes_nothing_and_says_so() -> None:
    partition = partition_of(10, 20)
    begin_all(partition)
    second = receipt_of(partition.batches[1], Verdict.REJECTED)
    ack(partition, 1)

    assert [event.kind for event in partition.ack(second)] == ["ack_duplicate"]
    assert partition.batches[1].state is BatchState.DELIVERED


def test_a_receipt_of_a_batch_below_the_checkpoint_is_a_duplicate() -> None:
    partition = partition_of(10)
    begin(partition, 0)
    receipt = receipt_of(partition.batches[0])
    partition.ack(receipt)

    assert [event.kind for event in partition.ack(receipt)] == ["ack_duplicate"]


def test_a_receipt_of_a_batch_that_was_never_begun_is_spurious() -> None:
    partition = partition_of(10)

    assert ack(partition, 0) == ["ack_spurious"]
    assert partition.batches[0].state is BatchState.PLANNED


def test_a_receipt_of_an_unknown_batch_or_another_generation_is_spurious() -> None:
    partition = partition_of(10)
    begin(partition, 0)
    known = receipt_of(partition.batches[0])

    unknown = replace(known, key=BatchKey(1, "p", 9), range=Range(90, 99))
    older = replace(known, key=BatchKey(0, "p", 0))

    assert [partition.ack(receipt)[0].kind for receipt in (unknown, older)] == ["ack_spurious", "ack_spurious"]
    assert partition.committed == 0


def test_a_receipt_with_another_range_is_refused_because_it_must_be_imported() -> None:
    partition = partition_of(10)
    begin(partition, 0)

    with pytest.raises(LedgerStateError, match="is not the batch's"):
        partition.ack(replace(receipt_of(partition.batches[0]), range=Range(0, 9)))
