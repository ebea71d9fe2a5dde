"""Tests of when a running wave is settled: KurrentDB's thresholds, and the timer."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from airflow_provider_ckpt.config.delivery import CommitStrategy
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.settle_cadence import SettleCadence, count_passable

CADENCE = SettleCadence(min_interval=1.0, min_batches=5, max_batches=1000)
"""The defaults."""


@pytest.mark.parametrize(
    ("count", "seconds", "due"),
    [
        (1000, 0.0, True),
        (999, 0.9, False),
        (5, 1.0, True),
        (5, 0.9, False),
        (4, 3600.0, False),
        (0, 3600.0, False),
    ],
)
def test_it_is_due_at_once_at_most_and_after_a_while_at_least(count: int, seconds: float, due: bool) -> None:
    assert CADENCE.due(count, count, seconds) is due


def test_what_the_checkpoint_could_not_move_by_does_not_make_it_due() -> None:
    assert not CADENCE.due(passable=4, waiting=5000, seconds=3600.0)


@pytest.mark.parametrize(("waiting", "seconds", "due"), [(1, 2.0, True), (1, 1.9, False), (0, 3600.0, False)])
def test_an_interval_settles_whatever_waits(waiting: int, seconds: float, due: bool) -> None:
    assert SettleCadence(max_interval=2.0).due(0, waiting, seconds) is due


@pytest.mark.parametrize(("count", "seconds", "due"), [(5000, 4.9, False), (1, 5.0, True), (0, 5.0, False)])
def test_a_timer_alone_decides_where_it_is_asked_for(count: int, seconds: float, due: bool) -> None:
    cadence = CommitStrategy(manual_commit=False, auto_commit_interval_ms=5000).cadence

    assert cadence.due(count, count, seconds) is due


def test_the_declarations_keys_are_the_cadence() -> None:
    strategy = CommitStrategy(
        commit_interval_ms=30_000, checkpoint_after_ms=200, min_checkpoint_count=2, max_checkpoint_count=7
    )

    assert strategy.cadence == SettleCadence(min_interval=0.2, min_batches=2, max_batches=7, max_interval=30.0)
    assert CommitStrategy().cadence == CADENCE


@pytest.mark.parametrize(
    ("cadence", "seconds"),
    [
        (CADENCE, 1.0),
        (SettleCadence(min_interval=30.0), 1.0),
        (SettleCadence(min_interval=0.2), 0.2),
        (SettleCadence(max_interval=0.3), 0.3),
        (SettleCadence(max_interval=5.0, timer_only=True), 5.0),
    ],
)
def test_receipts_are_looked_at_as_often_as_something_may_fall_due(cadence: SettleCadence, seconds: float) -> None:
    assert cadence.check_interval == seconds


def partition(name: str, count: int, *, settled: Collection[int] = (), cancelled: Collection[int] = ()) -> Partition:
    """Batches of ten positions each, in flight but for those that are settled or were cancelled."""
    batches = [
        Batch(
            BatchKey(1, name, seq),
            Range(10 * seq, 10 * seq + 10),
            BatchState.DELIVERED if seq in settled else BatchState.IN_FLIGHT,
            attempts=1,
            epoch=1,
            cancelled=seq in cancelled,
        )
        for seq in range(count)
    ]
    return Partition(name, next_seq=count, planned_end=10 * count, batches=batches)


def keys(name: str, *numbers: int) -> set[BatchKey]:
    """Batches by number."""
    return {BatchKey(1, name, number) for number in numbers}


def test_the_checkpoint_moves_up_to_the_first_batch_without_a_receipt_in_each_partition() -> None:
    a, b = partition("a", 4), partition("b", 4)

    assert count_passable([a, b], keys("a", 0, 1, 3) | keys("b", 1, 2)) == 2
    assert count_passable([a, b], keys("a", 0, 1, 2, 3) | keys("b", 0)) == 5
    assert count_passable([a, b], keys("a", 2) | keys("b", 3)) == 0
    assert count_passable([], keys("a", 0)) == 0


def test_batches_that_waited_for_an_earlier_one_are_counted_with_it() -> None:
    waiting = partition("a", 1500, settled=range(1, 1500))

    assert count_passable([waiting], keys("a", 0)) == 1500
    assert count_passable([waiting], set()) == 0


def test_what_lies_behind_a_cancelled_batch_is_not_counted() -> None:
    waiting = partition("a", 10, settled=range(1, 10), cancelled=[4])

    assert count_passable([waiting], keys("a", 0)) == 4
