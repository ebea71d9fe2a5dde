"""Query of the state of all pipelines at once: positions, batches, lease, dead letters; and of their lag over time.

The number of statements depends neither on the number of pipelines nor on the length of their history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import RESOLVED, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import DeadLetterState
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.lease import database_time

RATE_WINDOW = timedelta(minutes=10)
"""Time over which :attr:`PipelineOverview.rate` is an average."""

GROWTH_WINDOW = timedelta(hours=1)
"""Time before which the lag was :attr:`PipelineOverview.earlier_lag`."""

_P, _B, _M, _D = tables.partition.c, tables.batch.c, tables.partition_snapshot.c, tables.dead_letter.c
_SNAPSHOT = ("generation", "committed", "planned_end")


@dataclass(frozen=True, slots=True)
class PipelineOverview:
    """State of one pipeline, as the list of all pipelines shows it.

    :param name: name of the pipeline
    :param phase: its phase
    :param generation: its newest generation
    :param planned_at: time of its last planning; None if it was never planned
    :param owner: owner of the lease; None if it is free
    :param epoch: newest epoch; 0 if the lease was never acquired
    :param expires_at: when the lease expires; None if it was never acquired
    :param partitions: number of source partitions
    :param lag: sum of the distances between the checkpoints and the end of the source at the last planning; None if
        there are no source partitions or a checkpoint is the position before all others
    :param earlier_lag: number of positions that were planned beyond the checkpoints an hour ago; None if unknown
    :param done: number of positions from the first ones of the generations to the checkpoints; None if unknown
    :param all: number of positions from the first ones of the generations to the end of the source at the last
        planning; None if unknown
    :param rate: positions a second by which the checkpoints moved in the last ten minutes; None if unknown
    :param stalled_since: of the partitions with batches beyond the checkpoint, the earliest time at which a checkpoint
        reached its position; None if there are none
    :param planned: number of planned batches
    :param in_flight: number of batches in flight
    :param held: number of held batches
    :param failing: number of planned batches whose newest attempt has failed
    :param waiting: number of resolved batches beyond the checkpoints
    :param blocker: first held batch, or else the first failing one; None without either
    :param blocker_error: error type of the blocker; None without an error
    :param parked: number of parked dead letters
    :param oldest_parked: when the receipt of the oldest of them was claimed; None without any
    :param replaying: number of dead letters that a replay sends
    :param stored_actions: number of stored actions that no run has applied yet
    :param tasks: pairs of DAG id and task id that have planned the pipeline
    """

    name: str
    phase: str
    generation: int
    planned_at: datetime | None
    owner: str | None
    epoch: int
    expires_at: datetime | None
    partitions: int
    lag: int | None
    earlier_lag: int | None
    done: int | None
    all: int | None
    rate: float | None
    stalled_since: datetime | None
    planned: int
    in_flight: int
    held: int
    failing: int
    waiting: int
    blocker: BatchKey | None
    blocker_error: str | None
    parked: int
    oldest_parked: datetime | None
    replaying: int
    stored_actions: int
    tasks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """State of pipelines in one snapshot.

    :param at: time of the snapshot by the database's clock
    :param pipelines: the pipelines, by name
    """

    at: datetime
    pipelines: list[PipelineOverview]


def overview(connection: Connection, pipeline: str | None, now: datetime | None) -> Overview:
    """Return the state of all pipelines, or of one.

    :param connection: connection on a snapshot
    :param pipeline: name of the pipeline; None for all
    :param now: time from which ages are calculated; None for the database's time
    :return: the state; its list is empty if there is no such pipeline
    """
    now = now or database_time(connection)
    tasks: dict[str, list[tuple[str, str]]] = {}
    t = tables.pipeline_task.c
    query = sa.select(t.pipeline, t.dag_id, t.task_id).order_by(t.pipeline, t.dag_id, t.task_id)
    for name, dag_id, task_id in connection.execute(_only(query, t.pipeline, pipeline)):
        tasks.setdefault(name, []).append((dag_id, task_id))
    rows = connection.execute(_statement(pipeline, now)).mappings()
    return Overview(now, [_from_row(row, tuple(tasks.get(row["name"], ()))) for row in rows])


def _from_row(row: sa.RowMapping, tasks: tuple[tuple[str, str], ...]) -> PipelineOverview:
    values = {name: row[name] for name in PipelineOverview.__slots__ if name in row}
    blocked = row["blocker_partition"] is not None
    key = BatchKey(row["blocker_generation"], row["blocker_partition"], row["blocker_seq"]) if blocked else None
    numbers = ("partitions", "planned", "in_flight", "held", "failing", "waiting", "parked", "replaying")
    values |= {name: int(row[name] or 0) for name in (*numbers, "stored_actions", "epoch")}
    values |= {name: None if row[name] is None else int(row[name]) for name in ("lag", "earlier_lag", "done", "all")}
    moved = row["moved_lately"]
    error = row["blocker_error"]
    return PipelineOverview(
        **values
        | {
            "rate": None if moved is None else int(moved) / RATE_WINDOW.total_seconds(),
            "blocker": key,
            "blocker_error": error["type"] if error else None,
            "tasks": tasks,
        }
    )


def _only(query: sa.Select[Any], column: sa.ColumnElement[str], pipeline: str | None) -> sa.Select[Any]:
    return query if pipeline is None else query.where(column == pipeline)


def _statement(pipeline: str | None, now: datetime) -> sa.Select[Any]:
    positions, batches = _positions(pipeline, now), _batches(pipeline)
    blockers, dead_letters, actions = _blockers(pipeline), _dead_letters(pipeline), _stored_actions(pipeline)
    p, lease = tables.pipeline, tables.lease
    joined = p.outerjoin(lease, lease.c.pipeline == p.c.name)
    for part in (positions, batches, dead_letters, actions):
        joined = joined.outerjoin(part, part.c.pipeline == p.c.name)
    joined = joined.outerjoin(blockers, sa.and_(blockers.c.pipeline == p.c.name, blockers.c.place == 1))
    columns = [
        *(p.c[name] for name in ("name", "phase", "generation", "planned_at")),
        *(lease.c[name] for name in ("owner", "epoch", "expires_at")),
        *(
            column
            for part in (positions, batches, dead_letters, actions)
            for column in part.c
            if column.name != "pipeline"
        ),
        *(blockers.c[name].label(f"blocker_{name}") for name in ("generation", "partition", "seq", "error")),
    ]
    return _only(sa.select(*columns).select_from(joined), p.c.name, pipeline).order_by(p.c.name)


def _positions(pipeline: str | None, now: datetime) -> sa.Subquery:
    """Build a query that sums up the positions of the source partitions of each pipeline."""
    end = sa.case((_P.bound > _P.planned_end, _P.bound), else_=_P.planned_end)
    hour, minutes = tables.partition_snapshot.alias("hour"), tables.partition_snapshot.alias("minutes")
    same_generation = minutes.c.generation == _P.generation
    moved = sa.case(
        (_P.moved_at <= now - RATE_WINDOW, 0),
        (sa.and_(same_generation, minutes.c.committed > START), _P.committed - minutes.c.committed),
    )
    earlier = sa.case(
        (_P.moved_at <= now - GROWTH_WINDOW, _difference(_P.planned_end, _P.committed)),
        else_=_difference(hour.c.planned_end, hour.c.committed),
    )
    joined = tables.partition.outerjoin(hour, _is_before(hour, now - GROWTH_WINDOW)).outerjoin(
        minutes, _is_before(minutes, now - RATE_WINDOW)
    )
    query = (
        sa.select(
            _P.pipeline,
            sa.func.count().label("partitions"),
            _sum(_difference(end, _P.committed)).label("lag"),
            sa.func.sum(earlier).label("earlier_lag"),
            _sum(_difference(_P.committed, _P.base)).label("done"),
            _sum(_difference(end, _P.base)).label("all"),
            sa.func.sum(moved).label("moved_lately"),
            sa.func.min(_stalled_since()).label("stalled_since"),
        )
        .select_from(joined)
        .where(_P.side_end.is_(None))
        .group_by(_P.pipeline)
    )
    return _only(query, _P.pipeline, pipeline).subquery("positions")


def _difference(end: sa.ColumnElement[int], start: sa.ColumnElement[int]) -> sa.ColumnElement[int | None]:
    """Return SQL that subtracts two positions; it yields NULL if one of them is the position before all others."""
    return sa.case((sa.and_(start > START, end > START), end - start))


def _sum(values: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Sum up values of a group; NULL if one of them is NULL."""
    return sa.case((sa.func.count() == sa.func.count(values), sa.func.sum(values)))


def _is_before(snapshot: sa.FromClause, at: datetime) -> sa.ColumnElement[bool]:
    """Return the condition that joins a partition with its newest snapshot from a time or before."""
    newest = (
        sa.select(sa.func.max(_M.at))
        .where(_M.pipeline == _P.pipeline, _M.partition == _P.partition, _M.at <= at)
        .correlate(tables.partition)
        .scalar_subquery()
    )
    s = snapshot.c
    return sa.and_(s.pipeline == _P.pipeline, s.partition == _P.partition, s.at == newest, _P.moved_at > at)


def _stalled_since() -> sa.ColumnElement[datetime]:
    """Time at which the checkpoint of a partition with batches beyond it reached its position; NULL without batches.

    It is the first snapshot after the last one with another checkpoint; the row itself if there is none.
    """
    one, other = tables.partition_snapshot.alias("one"), tables.partition_snapshot.alias("other")
    of_one = sa.and_(one.c.pipeline == _P.pipeline, one.c.partition == _P.partition)
    of_other = sa.and_(other.c.pipeline == _P.pipeline, other.c.partition == _P.partition)
    left = (
        sa.select(other.c.at)
        .where(of_other, sa.or_(other.c.committed != _P.committed, other.c.generation != _P.generation))
        .order_by(other.c.at.desc())
        .limit(1)
        .correlate(tables.partition)
        .scalar_subquery()
    )
    first = sa.func.min(one.c.at, type_=tables.UtcTime())
    after = sa.select(first).where(of_one, one.c.at > left).correlate(tables.partition).scalar_subquery()
    ever = sa.select(first).where(of_one).correlate(tables.partition).scalar_subquery()
    found = sa.func.coalesce(sa.case((left.is_not(None), after), else_=ever), _P.moved_at, type_=tables.UtcTime())
    return sa.case((_P.committed < _P.planned_end, found))


def _of_generation() -> sa.ColumnElement[bool]:
    """Return the join condition of a batch with its partition, which leaves out batches of ended generations."""
    return sa.and_(_B.pipeline == _P.pipeline, _B.partition == _P.partition, _B.generation == _P.generation)


def _batches(pipeline: str | None) -> sa.Subquery:
    """Count the batches of each pipeline by state."""
    resolved = sa.and_(_B.state.in_([state.value for state in RESOLVED]), _B.range_end > _P.committed)
    states = {
        "planned": _B.state == BatchState.PLANNED.value,
        "in_flight": _B.state == BatchState.IN_FLIGHT.value,
        "held": _B.state == BatchState.HELD.value,
        "failing": sa.and_(_B.state == BatchState.PLANNED.value, _B.error.is_not(None)),
        "waiting": resolved,
    }
    columns = (sa.func.sum(sa.case((condition, 1), else_=0)).label(name) for name, condition in states.items())
    query = (
        sa.select(_B.pipeline, *columns)
        .select_from(tables.batch.join(tables.partition, _of_generation()))
        .group_by(_B.pipeline)
    )
    return _only(query, _B.pipeline, pipeline).subquery("batches")


def _blockers(pipeline: str | None) -> sa.Subquery:
    """Build a query that numbers the held and failing batches of each pipeline, held ones first."""
    rank = sa.case((_B.state == BatchState.HELD.value, 0), else_=1)
    place = sa.func.row_number().over(partition_by=_B.pipeline, order_by=(rank, _B.partition, _B.seq))
    is_held = _B.state == BatchState.HELD.value
    is_failing = sa.and_(_B.state == BatchState.PLANNED.value, _B.error.is_not(None))
    query = (
        sa.select(_B.pipeline, _B.generation, _B.partition, _B.seq, _B.error, place.label("place"))
        .select_from(tables.batch.join(tables.partition, _of_generation()))
        .where(sa.or_(is_held, is_failing))
    )
    return _only(query, _B.pipeline, pipeline).subquery("blockers")


def _dead_letters(pipeline: str | None) -> sa.Subquery:
    """Build a query that counts the dead letters of each pipeline that are neither replayed nor discarded."""
    is_replaying = _D.state == DeadLetterState.REPLAYING.value
    parked = sa.func.sum(sa.case((is_replaying, 0), else_=_D.records))
    oldest = sa.func.min(sa.case((is_replaying, None), else_=_D.at), type_=tables.UtcTime())
    replaying = sa.func.sum(sa.case((is_replaying, _D.records), else_=0))
    query = (
        sa.select(_D.pipeline, parked.label("parked"), oldest.label("oldest_parked"), replaying.label("replaying"))
        .where(sa.text(tables.UNDELIVERED))
        .group_by(_D.pipeline)
    )
    return _only(query, _D.pipeline, pipeline).subquery("dead_letters")


def _stored_actions(pipeline: str | None) -> sa.Subquery:
    c = tables.stored_action.c
    query = (
        sa.select(c.pipeline, sa.func.count().label("stored_actions"))
        .where(c.applied_at.is_(None))
        .group_by(c.pipeline)
    )
    return _only(query, c.pipeline, pipeline).subquery("actions")


@dataclass(frozen=True, slots=True)
class LagPoint:
    """Sums over the source partitions of a pipeline at a time.

    :param at: the time
    :param planned: sum of the ends of what was planned
    :param committed: sum of the checkpoints
    """

    at: datetime
    planned: int
    committed: int


def lag_history(
    connection: Connection, pipelines: Sequence[str], times: Sequence[datetime]
) -> dict[str, list[LagPoint]]:
    """Return planned ends and checkpoints of pipelines at some times, by name.

    A partition that did not exist yet, or whose checkpoint was the position before all others, does not count.

    :param connection: connection on a snapshot
    :param pipelines: names of the pipelines
    :param times: the times, oldest first
    """
    chosen = sa.select(*(_P[name] for name in ("pipeline", "partition", "moved_at", *_SNAPSHOT))).where(
        _P.pipeline.in_(pipelines), _P.side_end.is_(None)
    )
    now = {(row.pipeline, row.partition): row for row in connection.execute(chosen)}
    moved = [key for key, row in now.items() if row.moved_at is not None and times and row.moved_at > times[0]]
    then = _snapshots(connection, moved, times)
    sums: dict[str, dict[datetime, list[int]]] = {name: {} for name in pipelines}
    for key, row in now.items():
        for at in times:
            found = row if row.moved_at is not None and row.moved_at <= at else then.get((*key, at))
            if found is not None and found.committed > START:
                total = sums[key[0]].setdefault(at, [0, 0])
                total[0] += found.planned_end
                total[1] += found.committed
    return {name: [LagPoint(at, *by_time[at]) for at in times if at in by_time] for name, by_time in sums.items()}


def _snapshots(
    connection: Connection, keys: Sequence[tuple[str, str]], times: Sequence[datetime]
) -> dict[tuple[str, str, datetime], Any]:
    """Return the newest snapshot of each partition that is not newer than each time, by pipeline, partition, time."""
    if not keys:
        return {}
    moments = sa.union_all(*(sa.select(sa.literal(at, tables.UtcTime()).label("then")) for at in times)).subquery()
    newest = (
        sa.select(sa.func.max(_M.at, type_=tables.UtcTime()))
        .where(_M.pipeline == _P.pipeline, _M.partition == _P.partition, _M.at <= moments.c.then)
        .correlate(tables.partition, moments)
        .scalar_subquery()
    )
    names = sorted({name for name, _ in keys})
    found = (
        sa.select(_P.pipeline, _P.partition, moments.c.then, newest.label("at"))
        .select_from(tables.partition.join(moments, sa.true()))
        .where(_P.pipeline.in_(names), _P.side_end.is_(None), _P.moved_at > times[0])
        .subquery()
    )
    query = sa.select(_M.pipeline, _M.partition, found.c.then, _M.generation, _M.committed, _M.planned_end).join(
        found, sa.and_(_M.pipeline == found.c.pipeline, _M.partition == found.c.partition, _M.at == found.c.at)
    )
    return {(row.pipeline, row.partition, row.then): row for row in connection.execute(query)}
