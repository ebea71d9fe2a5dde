"""Keep a history of partitions' positions for the low watermark, the search for missing records, and rewinds to a time.

A partition moves when its checkpoint or the end of its plan changes. The current positions are in the partition's row.
A snapshot stores earlier positions: it is written when the partition moves away from them, at most about once a minute.
A look-up in the past returns the nearest earlier snapshot, therefore never a position later than the true one.
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
    """Update the time at which a partition last moved if its positions changed, and return a snapshot if one is due.

    :param pipeline: name of the pipeline
    :param item: partition as the command leaves it; its ``moved_at`` and ``marked_at`` are updated
    :param now: time of the command
    :return: row of the table ``partition_snapshot`` with the positions before the movement; None if the partition has
        not moved or no snapshot is due
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
    """Return the positions that partitions had at an earlier time, by partition id.

    Partitions without a snapshot from that time or before are left out.

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
    """Return the checkpoint that each source partition had at an earlier time.

    Where the exact checkpoint is not stored, an earlier position is returned, never a later one. A partition whose
    position at that time is unknown, or that did not exist yet, gets the position at which it first started.

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
    """Return, for each side partition that was garbage-collected, the receipts of it that the ledger knew.

    The sink may still have these receipts, which must not be taken for new ones.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :return: generation and end position of the known receipts, by id of the side partition
    """
    still_exists = sa.exists().where(_P.pipeline == _G.pipeline, _P.partition == _G.partition)
    query = sa.select(_G.partition, _G.generation, _G.committed)
    rows = connection.execute(query.where(_G.pipeline == pipeline, _G.committed.is_not(None), ~still_exists))
    return {row.partition: KnownReceipts(row.generation, row.committed) for row in rows}


def is_snapshot_due(since: datetime, marked_at: datetime | None, now: datetime) -> bool:
    """Return whether to store a snapshot of the positions that a partition had from ``since`` to ``now``.

    A snapshot is due if the partition had these positions for at least a minute, or if the newest snapshot was stored
    at least a minute before ``since``, or if there is none.

    :param since: time at which the partition reached these positions
    :param marked_at: time of the newest snapshot; None if there is none
    :param now: time at which the partition moves on
    """
    return marked_at is None or since - marked_at >= _SNAPSHOT_INTERVAL or now - since >= _SNAPSHOT_INTERVAL
