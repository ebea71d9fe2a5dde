"""Query the values that a run's metrics report: most delayed checkpoint, parked dead letters, expired ranges.

A range is expired if recovery can no longer compare its records with the source: the low watermark has passed the range
without a receipt, or the source has deleted the records.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.dead_letters import REPLAYABLE
from airflow_provider_ckpt.core.low_watermark import EXPIRED
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.types import Measures

_P, _M, _D, _E = tables.partition.c, tables.partition_snapshot.c, tables.dead_letter.c, tables.event.c


def measure(connection: Connection, pipeline: str, after: int | None) -> Measures:
    """Return the values that metrics report for a pipeline as a whole.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param after: id of an event; only ranges that expired after this event are returned. None to return no expired
        ranges
    """
    parked, oldest = connection.execute(
        sa.select(sa.func.coalesce(sa.func.sum(_D.records), 0), sa.func.min(_D.at)).where(
            _D.pipeline == pipeline, _D.state.in_([state.value for state in REPLAYABLE])
        )
    ).one()
    newest = status.last_event(connection, pipeline)
    expired = [] if after is None else _expired(connection, pipeline, after)
    since = min((row[0] for row in connection.execute(_last_moves(pipeline))), default=None)
    return Measures(newest, int(parked), oldest, since, expired)


def _last_moves(pipeline: str) -> sa.Select[datetime]:
    """Build a query for the time at which the checkpoint last moved, for each partition that has batches beyond it.

    The column ``moved_at`` of a partition cannot be used, since it also changes when batches are planned. The first
    stored snapshot of the partition with the current checkpoint shows when the checkpoint was reached.
    """
    same = sa.and_(
        _M.pipeline == _P.pipeline,
        _M.partition == _P.partition,
        _M.generation == _P.generation,
        _M.committed == _P.committed,
    )
    return (
        sa.select(sa.func.coalesce(sa.func.min(_M.at), _P.moved_at))
        .select_from(tables.partition.outerjoin(tables.partition_snapshot, same))
        .where(_P.pipeline == pipeline, _P.committed < _P.planned_end, _P.moved_at.is_not(None))
        .group_by(_P.partition, _P.moved_at)
    )


def _expired(connection: Connection, pipeline: str, after: int) -> list[dict[str, object]]:
    rows = connection.execute(
        sa.select(_E.partition, _E.detail)
        .where(_E.pipeline == pipeline, _E.id > after, _E.kind == EXPIRED)
        .order_by(_E.id)
    )
    return [{"partition": row.partition, "range": row.detail["range"]} for row in rows]
