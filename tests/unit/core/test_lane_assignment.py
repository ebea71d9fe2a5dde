"""Tests of the distribution of batches over lanes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.lane_assignment import distribute, without_blocked
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask, Wave


def task(partition: str, seq: int) -> BatchTask:
    return BatchTask(BatchKey(1, partition, seq), Range(seq, seq + 1), attempt=1)


TASKS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20)), unique=True, max_size=30).map(
    lambda pairs: [task(*pair) for pair in pairs]
)


@given(TASKS, st.integers(0, 6), st.booleans())
def test_every_batch_is_in_one_lane_and_no_lane_is_empty(tasks: list[BatchTask], lanes: int, pinned: bool) -> None:
    packed = distribute(tasks, lanes, pinned=pinned)

    assert sorted(t.key for lane in packed for t in lane) == sorted(t.key for t in tasks)
    assert all(packed)
    assert len(packed) <= max(lanes, 1)


@given(TASKS, st.integers(1, 6), st.booleans())
def test_a_lane_takes_a_partitions_batches_in_order(tasks: list[BatchTask], lanes: int, pinned: bool) -> None:
    for lane in distribute(tasks, lanes, pinned=pinned):
        for partition in "abcd":
            seqs = [t.key.seq for t in lane if t.key.partition == partition]
            assert seqs == sorted(seqs)


@given(TASKS, st.integers(1, 6))
def test_pinned_a_partition_is_in_one_lane_only(tasks: list[BatchTask], lanes: int) -> None:
    packed = distribute(tasks, lanes, pinned=True)

    for partition in "abcd":
        assert sum(any(t.key.partition == partition for t in lane) for lane in packed) <= 1


@pytest.mark.parametrize("count", [1, 7, 20])
def test_unpinned_one_partition_fills_all_lanes_evenly(count: int) -> None:
    sizes = [len(lane) for lane in distribute([task("a", seq) for seq in range(count)], 4, pinned=False)]

    assert len(sizes) == min(count, 4)
    assert max(sizes) - min(sizes) <= 1


def test_what_waits_for_an_earlier_batch_is_found_in_linear_time() -> None:
    batches = [Batch(BatchKey(1, name, seq), Range(seq, seq + 1)) for name in "ab" for seq in range(5000)]
    due = [batch for batch in batches if batch.key != BatchKey(1, "b", 4000)]
    began = time.perf_counter()

    found = without_blocked(due, batches)

    assert found == batches[:9000]
    assert time.perf_counter() - began < 2


def test_a_wave_lists_the_batches_of_all_lanes() -> None:
    wave = Wave(1, [[task("a", 0), task("a", 1)], [task("b", 0)]], seconds=10)

    assert [str(t.key) for t in wave.tasks] == ["a#0", "a#1", "b#0"]
