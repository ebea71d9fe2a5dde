"""When delivered work is settled while a wave still runs: KurrentDB's cadence, or a timer.

Counts are of batches, as everywhere here. Pure: how many there are and how much time has passed come in as arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_provider_ckpt.core.batch import BatchKey


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


def movable(partitions: Iterable[Iterable[BatchKey]], receipted: Collection[BatchKey]) -> int:
    """By how many batches the checkpoint could move: in each partition those up to the first without a receipt.

    :param partitions: of each, the batches that block its checkpoint, in order
    :param receipted: batches whose receipt is there and not settled
    """
    count = 0
    for keys in partitions:
        for key in keys:
            if key not in receipted:
                break
            count += 1
    return count
