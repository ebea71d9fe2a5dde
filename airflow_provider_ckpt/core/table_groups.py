"""Distribute the tables of a database that have new records over groups; one Airflow task replicates each group."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

_RECORDS_PER_TABLE = 1_000
"""Fixed cost of a table (lease, fence, planning), as the number of records that take as long to replicate."""


def group_tables(records: Mapping[str, int], groups: int) -> list[dict[str, int]]:
    """Distribute tables over groups of about equal work.

    The tables are taken in order of size, the largest first; each is added to the group with the least work so far.

    :param records: number of new records of each table, by the table's name
    :param groups: maximum number of groups
    :return: for each group, the number of new records by table name, the largest first; no group is empty
    """
    packed: list[dict[str, int]] = [{} for _ in range(min(groups, len(records)))]
    loads = [(0, at) for at in range(len(packed))]
    for name, count in sorted(records.items(), key=lambda item: (-item[1], item[0])):
        load, at = heapq.heappop(loads)
        packed[at][name] = count
        heapq.heappush(loads, (load + count + _RECORDS_PER_TABLE, at))
    return packed
