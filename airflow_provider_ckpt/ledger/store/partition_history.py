"""How partitions stood in the past: for the low watermark, for recovery, and for a rewind to a time.

A mark keeps what a partition stood at before it moved on, if it stood there for a minute or the newest mark is a minute
older; what it stands at now is in its own row. So a look back never names a later position than was true.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.receipts import Known
from airflow_provider_ckpt.core.recovery import Stand
from airflow_provider_ckpt.ledger.store import tables

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.store.partitions import Stored

_EVERY = timedelta(minutes=1)
_M = tables.mark.c
_P = tables.partition.c
_G = tables.generation.c


def mark(pipeline: str, item: Stored, now: datetime) -> dict[str, Any] | None:
    """Note that a partition moved, if it did; the mark to keep of where it stood, if it is worth one."""
    part, stood = item.partition, item.stood
    if stood == Stand(part.generation, part.committed, part.planned_end):
        return None
    since = item.moved_at
    item.moved_at = now if since is None else max(now, since)
    if stood is None or since is None or not worth_a_mark(since, item.marked_at, now):
        return None
    item.marked_at = since
    return {
        "pipeline": pipeline,
        "partition": part.id,
        "at": since,
        "generation": stood.generation,
        "committed": stood.committed,
        "planned_end": stood.planned_end,
    }


def stands(
    connection: Connection, pipeline: str, at: datetime, rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, Stand]:
    """How partitions stood at some time, as far as is known.

    :param rows: the rows of the partitions in question, by id
    """
    found: dict[str, Stand] = {}
    moved: list[str] = []
    for name, row in rows.items():
        if row["moved_at"] is not None and row["moved_at"] <= at:
            found[name] = Stand(row["generation"], row["committed"], row["planned_end"])
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
    here = sa.and_(_P.pipeline == pipeline, _P.partition.in_(moved))
    times = sa.select(_P.partition, newest.label("at")).where(here).subquery()
    query = sa.select(_M.partition, _M.generation, _M.committed, _M.planned_end).join(
        times, sa.and_(_M.pipeline == pipeline, _M.partition == times.c.partition, _M.at == times.c.at)
    )
    return found | {row.partition: Stand(*row[1:]) for row in connection.execute(query)}


def positions_at(connection: Connection, pipeline: str, at: datetime) -> dict[str, int]:
    """Where the checkpoint of each source partition stood at some time, and never later than that.

    What is not known any more, or had not begun, is where the partition first started.
    """
    rows = {
        row["partition"]: dict(row)
        for row in connection.execute(
            sa.select(tables.partition).where(_P.pipeline == pipeline, _P.side_end.is_(None)).order_by(_P.partition)
        ).mappings()
    }
    known = stands(connection, pipeline, at, rows)
    first = {
        row.partition: row.base
        for row in connection.execute(
            sa.select(_G.partition, _G.base).where(_G.pipeline == pipeline).order_by(_G.generation.desc())
        )
    }
    return {name: known[name].committed if name in known else first[name] for name in rows}


def collected(connection: Connection, pipeline: str) -> dict[str, Known]:
    """Where side partitions ended that are no partitions any more."""
    stands = sa.exists().where(_P.pipeline == _G.pipeline, _P.partition == _G.partition)
    query = sa.select(_G.partition, _G.generation, _G.committed)
    rows = connection.execute(query.where(_G.pipeline == pipeline, _G.committed.is_not(None), ~stands))
    return {row.partition: Known(row.generation, row.committed) for row in rows}


def worth_a_mark(since: datetime, marked_at: datetime | None, now: datetime) -> bool:
    """Whether to keep how a partition stood from ``since`` to ``now``, the newest mark being of ``marked_at``."""
    return marked_at is None or since - marked_at >= _EVERY or now - since >= _EVERY
