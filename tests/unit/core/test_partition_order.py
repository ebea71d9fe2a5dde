"""Later batches of a pinned partition wait after a failure."""

from __future__ import annotations

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition_order import StoppedPartitions

FIRST, SECOND, ELSEWHERE = BatchKey(1, "a", 0), BatchKey(1, "a", 1), BatchKey(1, "b", 0)


def test_a_failed_batch_stops_its_own_partition_alone() -> None:
    stopped = StoppedPartitions(pinned=True)

    stopped.add(FIRST)

    assert (SECOND in stopped, ELSEWHERE in stopped) == (True, False)


def test_batches_that_failed_before_stop_their_partitions() -> None:
    assert SECOND in StoppedPartitions(pinned=True, failed=[FIRST])


def test_nothing_stops_a_partition_whose_order_is_not_promised() -> None:
    stopped = StoppedPartitions(pinned=False, failed=[FIRST])

    stopped.add(FIRST)

    assert SECOND not in stopped
