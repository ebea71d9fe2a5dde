"""Queries for the status of a pipeline, its events and source files, and the data for finding missing records."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.connectors.source_plan import SourceFile
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.dead_letters import UNDELIVERED
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.low_watermark import low_watermark
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.recovery import PartitionAccount
from airflow_provider_ckpt.ledger.queries import range_receipts, schema_versions
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.store import partition_history, tables
from airflow_provider_ckpt.ledger.store import partitions as partition_store
from airflow_provider_ckpt.ledger.types import Totals

_EVENTS_SEARCHED = 1000
_LIST_LIMIT = 100


def pipelines(connection: Connection) -> list[str]:
    """Return the names of all pipelines in the ledger, in alphabetical order."""
    column = tables.pipeline.c.name
    return list(connection.execute(sa.select(column).order_by(column)).scalars())


def require_pipeline(connection: Connection, pipeline: str) -> sa.Row[Any]:
    """Return the row of a pipeline in the table ``pipeline``.

    :raises ConfigError: if the ledger does not know the pipeline; the hint names similar pipelines
    """
    columns = tables.pipeline.c
    row = connection.execute(sa.select(tables.pipeline).where(columns.name == pipeline)).one_or_none()
    if row is None:
        names = pipelines(connection)
        near = difflib.get_close_matches(pipeline, names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(names[:10]) or 'none yet'}."
        raise ConfigError(f"the ledger knows no pipeline {pipeline!r}.", hint=hint)
    return row


def partitions(connection: Connection, pipeline: str) -> dict[str, partition_store.LoadedPartition]:
    """Return every partition of a pipeline with its batches, by id; empty if the pipeline has never run."""
    column = tables.pipeline.c
    phase = connection.execute(sa.select(column.phase).where(column.name == pipeline)).scalar_one_or_none()
    return {} if phase is None else partition_store.load(connection, pipeline, Phase(phase))


def files(connection: Connection, pipeline: str, wanted: Sequence[Range] | None, first: int = 0) -> list[SourceFile]:
    """Return the discovered files of a source, in order of discovery: all files, or those that overlap given ranges.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param wanted: the ranges; None for all files
    :param first: number of the first file to return, counted from 0
    """
    c = tables.source_file.c
    query = sa.select(c.ordinal, c.path, c.base, c.size, c.etag).order_by(c.ordinal)
    query = query.where(c.pipeline == pipeline, c.ordinal >= first)
    if wanted is None:
        return [SourceFile(*row) for row in connection.execute(query)]
    ranges = merge(wanted)
    if not ranges:
        return []
    query = query.where(c.base < ranges[-1].end, c.base + c.size > ranges[0].start)
    starts = [span.start for span in ranges]
    found = []
    for row in connection.execute(query):
        file = SourceFile(*row)
        at = bisect_right(starts, file.base + file.size - 1) - 1
        if file.size and at >= 0 and ranges[at].end > file.base:
            found.append(file)
    return found


def events(connection: Connection, pipeline: str, limit: int) -> list[dict[str, Any]]:
    """Return the newest events of a pipeline's audit log, oldest first, JSON-ready.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param limit: maximum number of events
    """
    c = tables.event.c
    rows = connection.execute(sa.select(tables.event).where(c.pipeline == pipeline).order_by(c.id.desc()).limit(limit))
    return [event_to_json(row) for row in rows.mappings()][::-1]


def event_to_json(row: sa.RowMapping) -> dict[str, Any]:
    """Return a row of the audit log as a JSON-ready dict, with its times as ISO 8601 text."""
    recorded = row["recorded_at"]
    return dict(row) | {"at": row["at"].isoformat(), "recorded_at": recorded.isoformat() if recorded else None}


def events_after(connection: Connection, pipeline: str, after: int, limit: int) -> list[dict[str, Any]]:
    """Return the events of a pipeline's audit log that follow a given event, oldest first, JSON-ready.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param after: id of the given event
    :param limit: maximum number of events
    :raises LedgerStateError: if events that follow the given event were garbage-collected
    """
    collected_to = require_pipeline(connection, pipeline).collected_to
    if collected_to is not None and after < collected_to:
        raise LedgerStateError(
            f"events up to {collected_to} were garbage-collected, so the events after {after} are incomplete.",
            pipeline=pipeline,
            hint="Subscribe again without an event to continue from; that returns what is missing now.",
        )
    c = tables.event.c
    rows = connection.execute(
        sa.select(tables.event).where(c.pipeline == pipeline, c.id > after).order_by(c.id).limit(limit)
    )
    return [event_to_json(row) for row in rows.mappings()]


def last_event(connection: Connection, pipeline: str) -> int:
    """Return the id of the newest event in a pipeline's audit log, 0 if the log is empty."""
    c = tables.event.c
    return connection.execute(sa.select(sa.func.max(c.id)).where(c.pipeline == pipeline)).scalar_one() or 0


def accounts(
    connection: Connection, pipeline: str, *, now: datetime, settle_lag: timedelta, window: timedelta | None
) -> list[PartitionAccount]:
    """Return the receipts and batches of each partition above its low watermark, from which missing records are found.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param now: time from which ages are calculated
    :param settle_lag: minimum age of positions that are compared with the source
    :param window: the recovery window, with which the current low watermark is computed; None to use the stored low
        watermark
    :raises ConfigError: if the ledger does not know the pipeline
    """
    require_pipeline(connection, pipeline)
    stored = partitions(connection, pipeline)
    rows = {name: item.before_row for name, item in stored.items()}
    settled = partition_history.snapshots_at(connection, pipeline, now - settle_lag, rows)
    ago = partition_history.snapshots_at(connection, pipeline, now - window, rows) if window else {}
    found = []
    for name, item in stored.items():
        part = item.partition
        was = ago.get(name)
        low = low_watermark(
            item.low_watermark, part.committed, was if was and was.generation == part.generation else None
        )
        receipts = range_receipts.of_partition(connection, pipeline, name, part.generation, last_at=low)
        receipts += map(RangeReceipt.of, item.unconfirmed.values())
        found.append(PartitionAccount(part, low, receipts, settled.get(name)))
    return found


def status(connection: Connection, ledger_id: str, pipeline: str) -> dict[str, Any]:
    """Return the status of a pipeline as a JSON-ready dict, for ``airflow ckpt status``.

    It contains the phase, the lease, the partitions with their positions, the numbers of batches by state, the sums of
    records, the newest receipts, held and waiting batches, dead letters, the newest versions of the source's columns,
    and the newest 20 events.

    :param connection: connection whose transaction reads one snapshot
    :param ledger_id: id of the ledger
    :param pipeline: name of the pipeline
    :raises ConfigError: if the ledger does not know the pipeline
    """
    row = require_pipeline(connection, pipeline)
    stored = partitions(connection, pipeline)
    batches = [batch for item in stored.values() for batch in item.partition.batches.values()]
    receipts = {name: _newest_receipts(connection, pipeline, item.partition) for name, item in stored.items()}
    waiting = [b for b in batches if b.state is BatchState.PLANNED and b.error is not None]
    held = [b for b in batches if b.state is BatchState.HELD]
    return {
        "pipeline": pipeline,
        "ledger": ledger_id,
        "phase": row.phase,
        "generation": row.generation,
        "declaration": row.document,
        "lease": _lease(connection, pipeline),
        "begun_by": _last_begun_by(connection, pipeline),
        "partitions": [_partition(item) for item in stored.values()],
        "batches": _by_state(batches),
        "records": Totals().plus(item.totals for item in stored.values()).to_json(),
        "receipts": {name: lines for name, lines in receipts.items() if lines},
        "held": [_waiting_batch(batch) for batch in held[:_LIST_LIMIT]],
        "waiting": [_waiting_batch(batch) for batch in waiting[:_LIST_LIMIT]],
        "dead_letters": _dead_letters(connection, pipeline),
        "schema_versions": schema_versions.newest(connection, pipeline, _LIST_LIMIT),
        "events": events(connection, pipeline, 20),
    }


def _newest_receipts(connection: Connection, pipeline: str, partition: Partition) -> list[list[int]]:
    found = range_receipts.newest(connection, pipeline, partition.id, partition.generation, limit=_LIST_LIMIT)
    return [[r.range.start, r.range.end, r.batches, *r.counts.to_json().values()] for r in found]


def _last_begun_by(connection: Connection, pipeline: str) -> str | None:
    """Return the owner of the run that last began batches; None if the newest 1000 events contain no such beginning."""
    c = tables.event.c
    newest = (
        sa.select(c.id, c.kind, c.actor)
        .where(c.pipeline == pipeline)
        .order_by(c.id.desc())
        .limit(_EVENTS_SEARCHED)
        .subquery()
    )
    newest_begin = sa.select(newest.c.actor).where(newest.c.kind == "begun").order_by(newest.c.id.desc()).limit(1)
    return connection.execute(newest_begin).scalar_one_or_none()


def is_leased(connection: Connection, pipeline: str) -> bool:
    """Return whether a run holds the pipeline's lease now: it has an owner and has not expired."""
    return bool(_lease(connection, pipeline)["held"])


def _lease(connection: Connection, pipeline: str) -> dict[str, Any]:
    c = tables.lease.c
    row = connection.execute(sa.select(c.owner, c.epoch, c.expires_at).where(c.pipeline == pipeline)).one_or_none()
    if row is None:
        return {"owner": None, "epoch": 0, "expires": None, "held": False}
    is_held = row.owner is not None and row.expires_at > lease_store.database_time(connection)
    return {"owner": row.owner, "epoch": row.epoch, "expires": row.expires_at.isoformat(), "held": is_held}


def _partition(item: partition_store.LoadedPartition) -> dict[str, Any]:
    part: Partition = item.partition
    return {
        "id": part.id,
        "identity": item.identity,
        "generation": part.generation,
        "base": part.base,
        "committed": part.committed,
        "planned_end": part.planned_end,
        "low_watermark": item.low_watermark,
        "ends_at": part.limit,
        "bound": item.bound,
        "records": item.totals.to_json(),
        "batches": _by_state(list(part.batches.values())),
        "pending_acks": len(part.pending_acks),
        "unconfirmed": len(item.unconfirmed),
        "gaps": [[gap.start, gap.end] for gap in part.gaps()],
        "cancellation_watermark": part.cancellation_watermark,
    }


def _by_state(batches: list[Batch]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for batch in batches:
        totals[batch.state.value] = totals.get(batch.state.value, 0) + 1
    return dict(sorted(totals.items()))


def _waiting_batch(batch: Batch) -> dict[str, Any]:
    return {
        "batch": str(batch.key),
        "range": [batch.range.start, batch.range.end],
        "attempts": batch.attempts,
        "round": batch.round,
        "instruction": batch.instruction.value,
        "not_before": batch.not_before.isoformat() if batch.not_before else None,
        "error": batch.error.to_json() if batch.error else None,
    }


def _dead_letters(connection: Connection, pipeline: str) -> dict[str, int]:
    """Return the number of dead letters that are neither replayed nor discarded, by error type."""
    c = tables.dead_letter.c
    rows = connection.execute(
        sa.select(c.error_type, sa.func.sum(c.records))
        .where(c.pipeline == pipeline, c.state.in_([state.value for state in UNDELIVERED]))
        .group_by(c.error_type)
        .order_by(c.error_type)
    )
    return {row[0]: int(row[1]) for row in rows}
