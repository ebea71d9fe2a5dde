"""Query the progress of all pipelines of a declaration of many tables, to find the tables that have work.

The query takes three SQL statements, regardless of the number of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import tables

_P, _N, _A = tables.partition.c, tables.pipeline.c, tables.stored_action.c


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """Position up to which one pipeline has planned, and whether it has work even if its source has no new records.

    The fields except ``unfinished`` are None unless the pipeline has exactly one source partition.

    :param planned_end: position before which everything was planned
    :param state: JSON-ready values that the source stored at its last planning
    :param unfinished: whether batches or side partitions are not resolved, or stored actions are not applied
    :param identity: identity of the source partition, which the ledger stored when the partition was started
    """

    planned_end: int | None = None
    state: Mapping[str, Any] | None = None
    unfinished: bool = False
    identity: str | None = None


def database_progress(connection: Connection, database: str) -> dict[str, PipelineProgress]:
    """Return the progress of all pipelines of a declaration of many tables, by name.

    :param connection: connection whose transaction reads one snapshot
    :param database: name of the declaration, with which the names of its pipelines begin
    """
    prefix = f"{database}."
    names = connection.execute(sa.select(_N.name).where(_N.name.startswith(prefix, autoescape=True))).scalars().all()
    waiting = set(
        connection.execute(
            sa.select(_A.pipeline).where(_A.pipeline.startswith(prefix, autoescape=True), _A.applied_at.is_(None))
        ).scalars()
    )
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for row in connection.execute(
        sa.select(_P.pipeline, _P.committed, _P.planned_end, _P.side_end, _P.state, _P.identity).where(
            _P.pipeline.startswith(prefix, autoescape=True)
        )
    ):
        rows[row.pipeline].append(row)
    return {name: _progress(found, waiting=name in waiting) for name, found in rows.items()}


def _progress(rows: list[Any], *, waiting: bool) -> PipelineProgress:
    """Return the progress of one pipeline.

    :param rows: the rows of its partitions in the table ``partition``
    :param waiting: whether a stored action waits for a run
    """
    unfinished = waiting or any(_is_unfinished(row) for row in rows)
    source = [row for row in rows if row.side_end is None]
    if len(source) != 1:
        return PipelineProgress(unfinished=unfinished)
    return PipelineProgress(source[0].planned_end, source[0].state, unfinished, source[0].identity)


def _is_unfinished(row: Any) -> bool:
    """Return whether a partition still has positions to send: planned ones, or the rest of a side partition's range.

    :param row: row of the partition in the table ``partition``
    """
    end = row.planned_end if row.side_end is None else max(row.planned_end, row.side_end)
    return bool(row.committed < end)
