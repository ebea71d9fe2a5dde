"""Decide when receipts are settled, that is stored in the ledger, during a wave: by batch counts or by a timer.

Settling during a wave moves the checkpoint before the wave ends, but each settlement costs a transaction of the ledger.
The thresholds are those of KurrentDB's persistent subscriptions. All counts are numbers of batches. The functions are
pure: counts and elapsed time are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_provider_ckpt.core.batch import RESOLVED
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition_view import PartitionView
from airflow_provider_ckpt.core.ranges import contiguous_end


@dataclass(frozen=True, slots=True)
class SettleCadence:
    """Thresholds that decide when receipts are settled during a wave.

    A batch is *passable* if the checkpoint could pass it now, see :func:`count_passable`.

    :param min_interval: seconds since the last settlement after which ``min_batches`` passable batches are settled
    :param min_batches: number of passable batches that are settled once ``min_interval`` has passed
    :param max_batches: number of passable batches that are settled at once, regardless of the time passed
    :param max_interval: seconds since the last settlement after which any unsettled receipt is settled; None if such
        receipts may wait for the end of the wave
    :param timer_only: whether ``max_interval`` alone decides, and the numbers of batches are ignored
    """

    min_interval: float = 1.0
    min_batches: int = 5
    max_batches: int = 1000
    max_interval: float | None = None
    timer_only: bool = False

    def due(self, passable: int, waiting: int, seconds: float) -> bool:
        """Return whether a run should settle its receipts now: enough batches or enough time have accumulated.

        :param passable: number of batches that the checkpoint could pass, see :func:`count_passable`
        :param waiting: number of batches that have a receipt which is not settled, passable or not
        :param seconds: seconds since the last settlement, or since the wave started
        """
        if self.max_interval is not None and waiting and seconds >= self.max_interval:
            return True
        if self.timer_only:
            return False
        return passable >= self.max_batches or (passable >= self.min_batches and seconds >= self.min_interval)

    @property
    def check_interval(self) -> float:
        """Seconds between two calls of :meth:`due`: the shortest of the two intervals and 1 s.

        If the timer alone decides, it is ``max_interval``.
        """
        if self.timer_only and self.max_interval is not None:
            return self.max_interval
        return min(self.min_interval, _MAX_PAUSE, self.max_interval or _MAX_PAUSE)


_MAX_PAUSE = 1.0


def count_passable(partitions: Iterable[PartitionView], receipted: Collection[BatchKey]) -> int:
    """Return the number of batches that the checkpoint could pass now if all known receipts were settled.

    In each partition these are the batches before the first one without a verdict, including batches that were settled
    earlier and wait for a batch before them.

    :param partitions: the pipeline's partitions
    :param receipted: batches that have a receipt which is not settled yet
    """
    return sum(_passed(partition, receipted) for partition in partitions)


def _passed(partition: PartitionView, receipted: Collection[BatchKey]) -> int:
    batches = partition.batches.values()
    cancelled = min((b.key.seq for b in batches if b.cancelled and b.key not in receipted), default=None)
    beyond = [
        b.range
        for b in batches
        if (b.state in RESOLVED or b.key in receipted) and (cancelled is None or b.key.seq < cancelled)
    ]
    end = contiguous_end(partition.committed, (span for span in beyond if span.end > partition.committed))
    return sum(partition.committed < span.end <= end for span in beyond)
