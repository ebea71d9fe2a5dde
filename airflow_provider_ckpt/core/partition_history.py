"""Describe a partition's checkpoint and plan at earlier times, and choose the snapshots that can be deleted.

The low watermark and the search for missing records need the positions of one recovery window ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """Positions of a partition at some earlier time.

    :param generation: the generation at that time
    :param committed: the checkpoint at that time
    :param planned_end: end of the plan at that time: all positions before it were planned
    """

    generation: int
    committed: int
    planned_end: int


def deletable_snapshots(times: Sequence[datetime], *, cutoff: datetime, thin_before: datetime) -> list[datetime]:
    """Return the times of the snapshots of a partition that can be deleted.

    The newest snapshot at or before the cutoff remains, because it shows the state at the cutoff. Between the cutoff
    and ``thin_before``, the last snapshot of each hour remains.

    :param times: times of all snapshots of the partition, ascending
    :param cutoff: earliest time whose state is still needed
    :param thin_before: snapshots before this time are reduced to one an hour
    """
    deletable: list[datetime] = []
    for time, later in pairwise(times):
        same_hour = time.replace(minute=0, second=0, microsecond=0) == later.replace(minute=0, second=0, microsecond=0)
        if later <= cutoff or (later < thin_before and same_hour):
            deletable.append(time)
    return deletable
