"""Tests of the movement of the checkpoint; scenarios of other projects are in ``test_seed_scenarios.py``."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.reconcile import import_receipts
from tests.unit.core.machines import ack, begin, begin_all, fail, partition_of, receipt_of


def test_beginning_a_cancelled_batch_again_frees_an_earlier_range_that_was_resolved_under_a_later_seq() -> None:
    partition = partition_of(10, 20)
    begin_all(partition)
    partition.cancel(partition.in_flight_ticket(1))
    late = replace(receipt_of(partition.batches[0]), key=BatchKey(1, "p", 2))
    import_receipts(partition, [late])
    assert partition.committed == 0

    begin(partition, 1)

    assert partition.committed == 10


def test_a_cancelled_batch_with_a_receipt_after_all_frees_the_watermark() -> None:
    partition = partition_of(1, 2)
    begin_all(partition)
    partition.cancel(partition.in_flight_ticket(0))
    ack(partition, 1)

    ack(partition, 0)

    assert (partition.cancellation_watermark, partition.committed) == (None, 2)


def test_work_planned_and_never_sent_blocks_the_checkpoint() -> None:
    """KurrentDB's case: a pinned strategy passes over what its busy lane cannot take; others finish meanwhile."""
    partition = partition_of(1, 2, 3, 4)
    begin(partition, 0)
    begin(partition, 3)

    ack(partition, 0)
    ack(partition, 3)

    assert partition.committed == 1
    assert {seq: b.state for seq, b in partition.blocking.items()} == {1: BatchState.PLANNED, 2: BatchState.PLANNED}
    for seq in (2, 1):
        begin(partition, seq)
        ack(partition, seq)
    assert partition.committed == 4


def test_a_retry_that_waits_blocks_like_the_first_attempt() -> None:
    partition = partition_of(1, 2)
    begin_all(partition)
    fail(partition, partition.in_flight_ticket(0))

    ack(partition, 1)

    assert partition.committed == 0
    assert partition.pending_acks.keys() == {1}


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_acks_out_of_order_move_the_checkpoint_over_the_resolved_prefix_only(order: tuple[int, ...]) -> None:
    """FastForward's case: the collector answers batch 3 before batch 1."""
    partition = partition_of(10, 20, 30, 40)
    begin_all(partition)
    done: set[int] = set()

    for seq in order:
        ack(partition, seq)
        done.add(seq)
        prefix = next(n for n in range(5) if n not in done)
        assert partition.committed == prefix * 10


def test_a_rejected_batch_lets_the_checkpoint_pass() -> None:
    partition = partition_of(10, 20)
    begin_all(partition)
    ack(partition, 1)

    ack(partition, 0, Verdict.REJECTED)

    assert partition.committed == 20


def test_batches_below_the_checkpoint_are_handed_over() -> None:
    partition = partition_of(10, 20, 30)
    begin_all(partition)

    ack(partition, 0)
    ack(partition, 1)

    assert partition.batches.keys() == {2}
    assert [batch.key.seq for batch in partition.passed] == [0, 1]


def test_many_transitions_move_the_checkpoint_once_if_the_caller_says_so() -> None:
    partition = partition_of(10, 20)
    begin_all(partition)

    for seq in (0, 1):
        partition.ack(receipt_of(partition.batches[seq]), advance=False)
    assert partition.committed == 0

    assert [event.detail for event in partition.advance()] == [{"before": 0, "after": 20}]
    assert partition.advance() == []
