"""What is measured of a pipeline beyond its partitions: since when it stands still, what is parked, what expired."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.dead_letters import OPEN
from airflow_provider_ckpt.core.recovery import EXPIRED
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.types import Measures

_P, _M, _D, _E = tables.partition.c, tables.mark.c, tables.dead_letter.c, tables.event.c


def measure(connection: Connection, pipeline: str, after: int | None) -> Measures:
    """Read it all.

    :param after: tell of what expired after this event; of nothing if None
    """
    parked, oldest = connection.execute(
        sa.select(sa.func.coalesce(sa.func.sum(_D.records), 0), sa.func.min(_D.at)).where(
            _D.pipeline == pipeline, _D.state.in_([state.value for state in OPEN])
        )
    ).one()
    newest = status.last_event(connection, pipeline)
    expired = [] if after is None else _expired(connection, pipeline, after)
    since = min((row[0] for row in connection.execute(_standing(pipeline))), default=None)
    return Measures(newest, int(parked), oldest, since, expired)


def _standing(pipeline: str) -> sa.Select[datetime]:
    """Since when the checkpoint of each partition stands that has something planned beyond it.

    A partition's ``moved_at`` is also that of its plan; marks keep how it stood before, so the first of them with this
    checkpoint says when it got there.
    """
    same = sa.and_(
        _M.pipeline == _P.pipeline,
        _M.partition == _P.partition,
        _M.generation == _P.generation,
        _M.committed == _P.committed,
    )
    return (
        sa.select(sa.func.coalesce(sa.func.min(_M.at), _P.moved_at))
        .select_from(tables.partition.outerjoin(tables.mark, same))
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
