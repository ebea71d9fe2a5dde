"""History of partitions, for the low watermark, for recovery and for rewinds to a time.

A partition moves when its checkpoint or planned end changes. A snapshot stores the positions that it had before it
moved, if it had them for a minute or the newest snapshot is a minute older; the current positions are in the row of
the partition. A look-up in the past therefore never returns a position later than the true one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.partition_history import PartitionSnapshot
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.ledger.store import tables

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.store.partitions import LoadedPartition

_SNAPSHOT_INTERVAL = timedelta(minutes=1)
_M = tables.partition_snapshot.c
_P = tables.partition.c
_G = tables.generation.c


def record_move(pipeline: str, item: LoadedPartition, now: datetime) -> dict[str, Any] | None:
    """Update a partition's time of movement if its positions changed; return the row of a snapshot if one is due.

    The row stores the positions before the movement; at most one a minute is returned, else None.

    :param pipeline: name of the pipeline
    :param item: partition as the command leaves it; its ``moved_at`` and ``marked_at`` are updated
    :param now: time of the command
    """
    part, snapshot = item.partition, item.snapshot
    if snapshot == PartitionSnapshot(part.generation, part.committed, part.planned_end):
        return None
    since = item.moved_at
    item.moved_at = now if since is None else max(now, since)
    if snapshot is None or since is None or not is_snapshot_due(since, item.marked_at, now):
        return None
    item.marked_at = since
    return {
        "pipeline": pipeline,
        "partition": part.id,
        "at": since,
        "generation": snapshot.generation,
        "committed": snapshot.committed,
        "planned_end": snapshot.planned_end,
    }


def snapshots_at(
    connection: Connection, pipeline: str, at: datetime, rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, PartitionSnapshot]:
    """Return the positions that partitions had at an earlier time; partitions without a snapshot are left out.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param at: the earlier time
    :param rows: current rows of the table ``partition``, by partition id
    """
    found: dict[str, PartitionSnapshot] = {}
    moved: list[str] = []
    for name, row in rows.items():
        if row["moved_at"] is not None and row["moved_at"] <= at:
            found[name] = PartitionSnapshot(row["generation"], row["committed"], row["planned_end"])
        elif row["marked_at"] is not None:
            moved.append(name)
    if not moved:
        return found
    newest = (
        sa.select(sa.func.max(_M.at))
        .where(_M.pipeline == _P.pipeline, _M.partition == _P.partition, _M.at <= at)
        .correlate(tables.partition)
        .scalar_subquery()
    )
    of_partitions = sa.and_(_P.pipeline == pipeline, _P.partition.in_(moved))
    times = sa.select(_P.partition, newest.label("at")).where(of_partitions).subquery()
    query = sa.select(_M.partition, _M.generation, _M.committed, _M.planned_end).join(
        times, sa.and_(_M.pipeline == pipeline, _M.partition == times.c.partition, _M.at == times.c.at)
    )
    return found | {row.partition: PartitionSnapshot(*row[1:]) for row in connection.execute(query)}


def positions_at(connection: Connection, pipeline: str, at: datetime) -> dict[str, int]:
    """Return the checkpoint of each source partition at a time, or an earlier position, never a later one.

    A partition that is not known at that time, or had not started, gets the position at which it first started.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param at: the time
    """
    rows = {
        row["partition"]: dict(row)
        for row in connection.execute(
            sa.select(tables.partition).where(_P.pipeline == pipeline, _P.side_end.is_(None)).order_by(_P.partition)
        ).mappings()
    }
    known = snapshots_at(connection, pipeline, at, rows)
    first = {
        row.partition: row.base
        for row in connection.execute(
            sa.select(_G.partition, _G.base).where(_G.pipeline == pipeline).order_by(_G.generation.desc())
        )
    }
    return {name: known[name].committed if name in known else first[name] for name in rows}


def collected_ends(connection: Connection, pipeline: str) -> dict[str, KnownReceipts]:
    """Return the generation and end position of garbage-collected side partitions, by partition id."""
    still_exists = sa.exists().where(_P.pipeline == _G.pipeline, _P.partition == _G.partition)
    query = sa.select(_G.partition, _G.generation, _G.committed)
    rows = connection.execute(query.where(_G.pipeline == pipeline, _G.committed.is_not(None), ~still_exists))
    return {row.partition: KnownReceipts(row.generation, row.committed) for row in rows}


def is_snapshot_due(since: datetime, marked_at: datetime | None, now: datetime) -> bool:
    """Return whether to store a snapshot of a partition that did not move from ``since`` to ``now``.

    :param since: time from which the partition did not move
    :param marked_at: time of the newest snapshot, None if there is none
    :param now: time at which it moves
    """
    return marked_at is None or since - marked_at >= _SNAPSHOT_INTERVAL or now - since >= _SNAPSHOT_INTERVAL
