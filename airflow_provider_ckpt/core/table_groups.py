"""Distribute tables with new records over groups, each of which one task replicates."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

_RECORDS_PER_TABLE = 1_000
"""Number of records whose replication takes about as long as what each table takes besides: lease, fence, planning."""


def group_tables(records: Mapping[str, int], groups: int) -> list[dict[str, int]]:
    """Return tables in groups of about equal work: each, the largest first, joins the group with the least.

    :param records: number of new records of each table, by its name
    :param groups: largest number of groups
    :return: the tables of each group with their numbers, the largest first; no group is empty
    """
    packed: list[dict[str, int]] = [{} for _ in range(min(groups, len(records)))]
    loads = [(0, at) for at in range(len(packed))]
    for name, count in sorted(records.items(), key=lambda item: (-item[1], item[0])):
        load, at = heapq.heappop(loads)
        packed[at][name] = count
        heapq.heappush(loads, (load + count + _RECORDS_PER_TABLE, at))
    return packed
