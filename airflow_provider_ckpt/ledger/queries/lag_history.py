"""Query the lag of pipelines at earlier times: ends of plans and checkpoints, from the snapshots of their partitions.

The cost depends on the number of partitions and times, not on the number of snapshots between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.ledger.store import tables

_P, _M = tables.partition.c, tables.partition_snapshot.c
_Positions = tuple[int, int]
"""Pair of the planned end and the checkpoint of a partition."""


@dataclass(frozen=True, slots=True)
class LagPoint:
    """Planned ends and checkpoints of a pipeline at one time, summed up over its source partitions.

    :param at: the time
    :param planned: sum of the ends of the plans; the difference from ``committed`` is the part of the lag that was
        planned
    :param committed: sum of the checkpoints
    """

    at: datetime
    planned: int
    committed: int


def lag_history(
    connection: Connection, pipelines: Sequence[str], times: Sequence[datetime]
) -> dict[str, list[LagPoint]]:
    """Return the sums of planned ends and checkpoints of pipelines at some times, by name of the pipeline.

    A partition that did not exist yet, or whose checkpoint was still ``start``, is left out of the sums.

    :param connection: connection whose transaction reads one snapshot
    :param pipelines: names of the pipelines
    :param times: the times, oldest first
    :return: for each pipeline, a point for each time at which at least one of its partitions counts
    """
    chosen = sa.select(_P.pipeline, _P.partition, _P.moved_at, _P.planned_end, _P.committed).where(
        _P.pipeline.in_(pipelines), _P.side_end.is_(None)
    )
    then = _snapshots(connection, pipelines, times)
    sums: dict[str, dict[int, list[int]]] = {name: {} for name in pipelines}
    for name, partition, moved_at, *now in connection.execute(chosen):
        for number, at in enumerate(times):
            is_now = moved_at is not None and moved_at <= at
            found = now if is_now else then.get((name, partition, number))
            if found is not None and found[1] > START:
                total = sums[name].setdefault(number, [0, 0])
                total[0] += found[0]
                total[1] += found[1]
    return {
        name: [LagPoint(times[number], *total) for number, total in sorted(by_time.items())]
        for name, by_time in sums.items()
    }


def _snapshots(
    connection: Connection, pipelines: Sequence[str], times: Sequence[datetime]
) -> dict[tuple[str, str, int], _Positions]:
    """Return the stored positions of partitions at each time, for the partitions that have moved since that time.

    Partitions that have not moved since then had their present positions already, and are left out.

    :param connection: connection whose transaction reads one snapshot
    :param pipelines: names of the pipelines
    :param times: the times, oldest first
    :return: planned end and checkpoint, by pipeline, partition and index of the time
    """
    if not times:
        return {}
    moments = sa.union_all(
        *(
            sa.select(sa.literal(number).label("number"), sa.literal(at, tables.UtcTime()).label("then"))
            for number, at in enumerate(times)
        )
    ).subquery()
    # Both numbers as one text: as two subqueries they would be looked up twice, and a join would read all snapshots.
    both = sa.cast(_M.planned_end, sa.Text) + " " + sa.cast(_M.committed, sa.Text)
    newest = (
        sa.select(both)
        .where(_M.pipeline == _P.pipeline, _M.partition == _P.partition, _M.at <= moments.c.then)
        .order_by(_M.at.desc())
        .limit(1)
        .correlate(tables.partition, moments)
        .scalar_subquery()
    )
    query = (
        sa.select(_P.pipeline, _P.partition, moments.c.number, newest)
        .select_from(tables.partition.join(moments, sa.true()))
        .where(_P.pipeline.in_(pipelines), _P.side_end.is_(None), _P.moved_at > moments.c.then)
    )
    found = {}
    for name, partition, number, text in connection.execute(query):
        if text is not None:
            planned, committed = text.split(" ")
            found[name, partition, number] = int(planned), int(committed)
    return found
