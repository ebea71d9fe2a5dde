"""When delivered work is settled while a wave still runs: KurrentDB's cadence, or a timer.

Counts are of batches, as everywhere here. Pure: how many there are and how much time has passed come in as arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_provider_ckpt.core.batch import RESOLVED, BatchKey
from airflow_provider_ckpt.core.partition_view import PartitionView
from airflow_provider_ckpt.core.ranges import contiguous_end


@dataclass(frozen=True, slots=True)
class Cadence:
    """When to settle.

    :param after: seconds, after which ``least`` batches are enough
    :param least: fewer batches by which the checkpoint could move wait
    :param most: so many are settled at once
    :param at_least_every: seconds, after which anything that waits is settled; None: only the wave's end does that
    :param timed: whether ``at_least_every`` alone decides
    """

    after: float = 1.0
    least: int = 5
    most: int = 1000
    at_least_every: float | None = None
    timed: bool = False

    def due(self, movable: int, waiting: int, seconds: float) -> bool:
        """Whether to settle now.

        :param movable: batches by which the checkpoint would move, see :func:`movable`
        :param waiting: batches that have a receipt and are not settled, these among them
        :param seconds: since the last settlement, or since the wave began
        """
        if self.at_least_every is not None and waiting and seconds >= self.at_least_every:
            return True
        if self.timed:
            return False
        return movable >= self.most or (movable >= self.least and seconds >= self.after)

    @property
    def pause(self) -> float:
        """Seconds from one look at the receipts to the next: soon enough for whatever falls due first."""
        if self.timed and self.at_least_every is not None:
            return self.at_least_every
        return min(self.after, _LONGEST_PAUSE, self.at_least_every or _LONGEST_PAUSE)


_LONGEST_PAUSE = 1.0


def movable(partitions: Iterable[PartitionView], receipted: Collection[BatchKey]) -> int:
    """Count the batches that the checkpoint could pass now.

    In each partition these are the batches before the first one without a verdict. Batches that were settled earlier
    and have waited for a batch before them count as well.

    :param partitions: the pipeline's partitions
    :param receipted: batches that have a receipt which is not settled yet
    """
    return sum(_passed(partition, receipted) for partition in partitions)


def _passed(partition: PartitionView, receipted: Collection[BatchKey]) -> int:
    batches = partition.batches.values()
    cancelled = min((b.key.seq for b in batches if b.cancelled and b.key not in receipted), default=None)
    ahead = [
        b.range
        for b in batches
        if (b.state in RESOLVED or b.key in receipted) and (cancelled is None or b.key.seq < cancelled)
    ]
    end = contiguous_end(partition.committed, (span for span in ahead if span.end > partition.committed))
    return sum(partition.committed < span.end <= end for span in ahead)
