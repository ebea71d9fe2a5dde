"""Query the state of all pipelines at once: positions, batches, lease, dead letters.

The number of statements depends neither on the number of pipelines nor on the length of their history.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import RESOLVED, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import DeadLetterState
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.core.refresh import REFRESH
from airflow_provider_ckpt.ledger.queries import pipeline_tasks
from airflow_provider_ckpt.ledger.queries.pipeline_tasks import Tasks
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.lease import database_time

RATE_WINDOW = timedelta(minutes=10)
"""Period over which :attr:`PipelineOverview.rate` is averaged."""

GROWTH_WINDOW = timedelta(hours=1)
"""Age of the positions from which :attr:`PipelineOverview.earlier_lag` is computed."""

_P, _B, _M, _D = tables.partition.c, tables.batch.c, tables.partition_snapshot.c, tables.dead_letter.c
_COUNTS = frozenset(
    {"partitions", "planned", "in_flight", "held", "failing", "waiting", "parked", "replaying", "stored_actions"}
)
_BLOCKER = ("generation", "partition", "seq", "error")


@dataclass(frozen=True, slots=True)
class PipelineOverview:
    """State of one pipeline, as the list of all pipelines shows it.

    The *end* of a partition is the latest of the end of its source at the last planning, the end of its plan, and the
    position after the publishing batch of a refresh.

    :param name: name of the pipeline
    :param phase: the pipeline's phase
    :param generation: the pipeline's newest generation
    :param planned_at: time of the last planning; None if the pipeline was never planned
    :param owner: owner of the lease; None if it is free
    :param epoch: newest epoch; 0 if the lease was never acquired
    :param expires_at: when the lease expires; None if it was never acquired
    :param renewed_at: when the owner acquired or last renewed the lease; None if it is free
    :param partitions: number of source partitions
    :param lag: sum of the distances from the checkpoints to the ends of the partitions; None if there are no source
        partitions, or a checkpoint is ``start``
    :param earlier_lag: sum of the distances from the checkpoints to the ends of the plans an hour ago, over the
        partitions for which they are known; None if they are known for none
    :param done: sum of the distances from the first positions of the generations to the checkpoints; None if there are
        no source partitions, or one of these positions is ``start``
    :param all: sum of the distances from the first positions of the generations to the ends of the partitions; None as
        for ``done``
    :param rate: positions per second by which the checkpoints moved in the last ten minutes, over the partitions for
        which this is known; None if it is known for none
    :param stalled_since: of the partitions with batches beyond the checkpoint, the earliest time at which a checkpoint
        reached its position; None if there are none
    :param planned: number of planned batches
    :param in_flight: number of batches in flight
    :param held: number of held batches
    :param failing: number of planned batches with an error from an earlier attempt
    :param waiting: number of resolved batches beyond the checkpoints
    :param blocker: first held batch, or else the first failing batch; None if there is neither
    :param blocker_error: error type of the blocker; None without an error
    :param parked: number of parked dead letters
    :param oldest_parked: when the receipt of the oldest parked dead letter was claimed; None if there are none
    :param replaying: number of dead letters that a replay sends
    :param stored_actions: number of stored actions that no run has applied yet
    :param tasks: tasks that have planned the pipeline
    """

    name: str
    phase: str
    generation: int
    planned_at: datetime | None
    owner: str | None
    epoch: int
    expires_at: datetime | None
    renewed_at: datetime | None
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
    tasks: Tasks


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

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline; None for all
    :param now: time from which ages are calculated; None for the database's time
    :return: the state; :attr:`Overview.pipelines` is empty if there is no such pipeline
    """
    now = now or database_time(connection)
    tasks = pipeline_tasks.tasks_by_pipeline(connection, pipeline)
    times = {"window_start": now - RATE_WINDOW, "hour_ago": now - GROWTH_WINDOW}
    rows = connection.execute(_statement(of_one=pipeline is not None), times | {"name": pipeline}).mappings()
    return Overview(now, [_from_row(dict(row), tasks.get(row["name"], ())) for row in rows])


def _from_row(values: dict[str, Any], tasks: Tasks) -> PipelineOverview:
    generation, partition, seq, error = (values.pop(f"blocker_{name}") for name in _BLOCKER)
    for name in ("lag", "earlier_lag", "done", "all", "moved_lately"):  # a sum may need more than 64 bits
        values[name] = None if values[name] is None else int(values[name])
    moved, ttl = values.pop("moved_lately"), timedelta(milliseconds=values.pop("ttl_ms") or 0)
    return PipelineOverview(
        **values,
        renewed_at=None if values["owner"] is None else values["expires_at"] - ttl,
        rate=None if moved is None else moved / RATE_WINDOW.total_seconds(),
        blocker=None if partition is None else BatchKey(generation, partition, seq),
        blocker_error=error["type"] if error else None,
        tasks=tasks,
    )


@cache
def _statement(*, of_one: bool) -> sa.Select[Any]:
    """Return the query for the state of all pipelines, or of one; the query is cached, since building it is slow.

    :param of_one: whether to select only the pipeline that the bound parameter ``name`` names
    """
    by_state = _by_state(of_one)
    parts = (_positions(of_one), _batches(by_state), _dead_letters(of_one), _stored_actions(of_one))
    p, lease, blockers = tables.pipeline, tables.lease, _blockers(by_state)
    joined = p.outerjoin(lease, lease.c.pipeline == p.c.name)
    for part in parts:
        joined = joined.outerjoin(part, part.c.pipeline == p.c.name)
    joined = joined.outerjoin(blockers, sa.and_(blockers.c.pipeline == p.c.name, blockers.c.place == 1))
    is_blocker = (_B[name] == blockers.c[name] for name in ("pipeline", "generation", "partition", "seq"))
    joined = joined.outerjoin(tables.batch, sa.and_(*is_blocker))
    columns = [
        *(p.c[name] for name in ("name", "phase", "generation", "planned_at")),
        *(lease.c[name] for name in ("owner", "expires_at", "ttl_ms")),
        sa.func.coalesce(lease.c.epoch, 0).label("epoch"),
        *(
            sa.func.coalesce(column, 0).label(column.name) if column.name in _COUNTS else column
            for part in parts
            for column in part.c
            if column.name != "pipeline"
        ),
        *(_B[name].label(f"blocker_{name}") for name in _BLOCKER),
    ]
    return _only(sa.select(*columns).select_from(joined), p.c.name, of_one).order_by(p.c.name)


def _only(query: sa.Select[Any], column: sa.ColumnElement[str], of_one: bool) -> sa.Select[Any]:
    return query.where(column == sa.bindparam("name", type_=sa.String())) if of_one else query


def _positions(of_one: bool) -> sa.Subquery:
    """Build a query of sums over each pipeline's source partitions, such as its lag, from their positions.

    :param of_one: whether to select only the pipeline that the bound parameter ``name`` names
    """
    window_start, hour_ago = (sa.bindparam(name, type_=tables.UtcTime()) for name in ("window_start", "hour_ago"))
    end = _end()
    is_comparable = sa.and_(_M.generation == _P.generation, _M.committed > START)
    moved = sa.case(
        (_P.moved_at <= window_start, 0),
        else_=_newest(sa.case((is_comparable, _P.committed - _M.committed)), window_start),
    )
    earlier = sa.case(
        (_P.moved_at <= hour_ago, _difference(_P.planned_end, _P.committed)),
        else_=_newest(_difference(_M.planned_end, _M.committed), hour_ago),
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
        .where(_P.side_end.is_(None))
        .group_by(_P.pipeline)
    )
    return _only(query, _P.pipeline, of_one).subquery("positions")


def _end() -> sa.ColumnElement[int]:
    """Return SQL for the end of a partition: the latest of its bound, the end of its plan and the end of a refresh.

    A refresh ends after its publishing batch, even while that batch is not planned yet because rows are not staged.
    """
    rows_end = sa.cast(_P.state[(REFRESH, "rows_end")].as_string(), sa.BigInteger)
    end = sa.case((_P.bound > _P.planned_end, _P.bound), else_=_P.planned_end)
    return sa.case((rows_end >= end, rows_end + 1), else_=end)


def _newest(value: sa.ColumnElement[Any], at: sa.ColumnElement[datetime]) -> sa.ScalarSelect[Any]:
    """Return SQL for a value of a partition's snapshot that shows the state at a time; NULL without such a snapshot.

    :param value: the value, an expression on the columns of the snapshot
    :param at: the time; the newest snapshot at or before it is used
    """
    of_partition = sa.and_(_M.pipeline == _P.pipeline, _M.partition == _P.partition)
    query = sa.select(value).select_from(tables.partition_snapshot).where(of_partition, _M.at <= at)
    return query.order_by(_M.at.desc()).limit(1).correlate(tables.partition).scalar_subquery()


def _difference(end: sa.ColumnElement[int], start: sa.ColumnElement[int]) -> sa.ColumnElement[int | None]:
    """Return SQL for the difference of two positions; it yields NULL if one of them is ``start``."""
    return sa.case((sa.and_(start > START, end > START), end - start))


def _sum(values: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return SQL for the sum of the values of a group; it yields NULL if one of them is NULL."""
    return sa.case((sa.func.count() == sa.func.count(values), sa.func.sum(values)))


def _stalled_since() -> sa.ColumnElement[datetime]:
    """Return SQL for the time at which a partition's checkpoint reached its position; NULL if no batch is beyond it.

    This is the time of the first snapshot with the present checkpoint that follows the last snapshot with another
    checkpoint; if there is none, the column ``moved_at`` of the partition.
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


def _by_state(of_one: bool) -> sa.CTE:
    """Build a query that counts the batches of each partition's present generation by state.

    Each row has the number of batches (``batches``), of batches with an error (``failed``) and of batches that end
    beyond the checkpoint (``beyond``), and the seqs of the first batch (``first``) and of the first batch with an error
    (``first_failed``).

    :param of_one: whether to select only the pipeline that the bound parameter ``name`` names
    """
    of_generation = sa.and_(_B.pipeline == _P.pipeline, _B.partition == _P.partition, _B.generation == _P.generation)
    query = (
        sa.select(
            _B.pipeline,
            _B.partition,
            _B.generation,
            _B.state,
            sa.func.count().label("batches"),
            sa.func.count(_B.error).label("failed"),
            sa.func.count().filter(_B.range_end > _P.committed).label("beyond"),
            sa.func.min(_B.seq).label("first"),
            sa.func.min(sa.case((_B.error.is_not(None), _B.seq))).label("first_failed"),
        )
        .select_from(tables.batch.join(tables.partition, of_generation))
        .group_by(_B.pipeline, _B.partition, _B.generation, _B.state)
    )
    return _only(query, _B.pipeline, of_one).cte("by_state")


def _batches(by_state: sa.CTE) -> sa.Subquery:
    """Return a subquery that counts the batches of each pipeline by state, such as planned, held or failing."""
    c = by_state.c
    is_planned = c.state == BatchState.PLANNED.value
    numbers = {
        "planned": (c.batches, is_planned),
        "in_flight": (c.batches, c.state == BatchState.IN_FLIGHT.value),
        "held": (c.batches, c.state == BatchState.HELD.value),
        "failing": (c.failed, is_planned),
        "waiting": (c.beyond, c.state.in_([state.value for state in RESOLVED])),
    }
    columns = (_count(values, condition).label(name) for name, (values, condition) in numbers.items())
    return sa.select(c.pipeline, *columns).group_by(c.pipeline).subquery("batches")


def _count(values: sa.ColumnElement[int], condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    """Return SQL for the sum of counts over the rows of a group that meet a condition.

    :param values: the counts
    :param condition: the condition
    """
    return sa.cast(sa.func.sum(values).filter(condition), sa.BigInteger)


def _blockers(by_state: sa.CTE) -> sa.Subquery:
    """Build a query that ranks the first held or failing batch of each partition within its pipeline.

    Held batches come first, then failing ones; both are in the order of partitions. The first in rank is the
    pipeline's :attr:`~PipelineOverview.blocker`.
    """
    c = by_state.c
    is_held = c.state == BatchState.HELD.value
    is_failing = sa.and_(c.state == BatchState.PLANNED.value, c.failed > 0)
    seq = sa.case((is_held, c.first), else_=c.first_failed)
    place = sa.func.row_number().over(partition_by=c.pipeline, order_by=(sa.case((is_held, 0), else_=1), c.partition))
    query = sa.select(c.pipeline, c.generation, c.partition, seq.label("seq"), place.label("place"))
    return query.where(sa.or_(is_held, is_failing)).subquery("blockers")


def _dead_letters(of_one: bool) -> sa.Subquery:
    """Build a query that counts the dead letters of each pipeline that are neither replayed nor discarded.

    :param of_one: whether to select only the pipeline that the bound parameter ``name`` names
    """
    is_replaying = _D.state == DeadLetterState.REPLAYING.value
    query = (
        sa.select(
            _D.pipeline,
            _count(_D.records, ~is_replaying).label("parked"),
            sa.func.min(_D.at, type_=tables.UtcTime()).filter(~is_replaying).label("oldest_parked"),
            _count(_D.records, is_replaying).label("replaying"),
        )
        .where(sa.text(tables.UNDELIVERED))
        .group_by(_D.pipeline)
    )
    return _only(query, _D.pipeline, of_one).subquery("dead_letters")


def _stored_actions(of_one: bool) -> sa.Subquery:
    c = tables.stored_action.c
    query = (
        sa.select(c.pipeline, sa.func.count().label("stored_actions"))
        .where(c.applied_at.is_(None))
        .group_by(c.pipeline)
    )
    return _only(query, c.pipeline, of_one).subquery("actions")
