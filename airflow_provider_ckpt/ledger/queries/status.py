"""What the ledger shows: status, receipts, events, files. Reads take a snapshot and need no lease."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.connectors.protocols import SourceFile
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.dead_letters import UNDELIVERED
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.receipts import RangeReceipt
from airflow_provider_ckpt.core.recovery import Account, low_watermark
from airflow_provider_ckpt.core.tickets import Phase
from airflow_provider_ckpt.ledger.queries import range_receipts as ranges
from airflow_provider_ckpt.ledger.store import lease as leases
from airflow_provider_ckpt.ledger.store import partition_history, tables
from airflow_provider_ckpt.ledger.store import partitions as store
from airflow_provider_ckpt.ledger.types import Totals

_REMEMBERED = 1000
_LISTED = 100


def pipelines(connection: Connection) -> list[str]:
    """All names, in order."""
    column = tables.pipeline.c.name
    return list(connection.execute(sa.select(column).order_by(column)).scalars())


def known(connection: Connection, pipeline: str) -> sa.Row[Any]:
    """The pipeline's own row.

    :raises ConfigError: if there is none; names the nearest known ones
    """
    columns = tables.pipeline.c
    row = connection.execute(sa.select(tables.pipeline).where(columns.name == pipeline)).one_or_none()
    if row is None:
        names = pipelines(connection)
        near = difflib.get_close_matches(pipeline, names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(names[:10]) or 'none yet'}."
        raise ConfigError(f"the ledger knows no pipeline {pipeline!r}.", hint=hint)
    return row


def partitions(connection: Connection, pipeline: str) -> dict[str, store.Stored]:
    """Every partition with its batches; none for a pipeline that has never run."""
    column = tables.pipeline.c
    phase = connection.execute(sa.select(column.phase).where(column.name == pipeline)).scalar_one_or_none()
    return {} if phase is None else store.load(connection, pipeline, Phase(phase))


def files(connection: Connection, pipeline: str, wanted: Sequence[Range] | None) -> list[SourceFile]:
    """Discovered files by ordinal, all or those that overlap one of the ranges."""
    c = tables.source_file.c
    query = sa.select(c.ordinal, c.path, c.base, c.size, c.etag).where(c.pipeline == pipeline).order_by(c.ordinal)
    if wanted is None:
        return [SourceFile(*row) for row in connection.execute(query)]
    spans = merge(wanted)
    if not spans:
        return []
    query = query.where(c.base < spans[-1].end, c.base + c.size > spans[0].start)
    starts = [span.start for span in spans]
    found = []
    for row in connection.execute(query):
        file = SourceFile(*row)
        at = bisect_right(starts, file.base + file.size - 1) - 1
        if file.size and at >= 0 and spans[at].end > file.base:
            found.append(file)
    return found


def events(connection: Connection, pipeline: str, limit: int) -> list[dict[str, Any]]:
    """The newest events, oldest of them first."""
    c = tables.event.c
    rows = connection.execute(sa.select(tables.event).where(c.pipeline == pipeline).order_by(c.id.desc()).limit(limit))
    return [as_json(row) for row in rows.mappings()][::-1]


def as_json(row: sa.RowMapping) -> dict[str, Any]:
    """An event, JSON-ready."""
    recorded = row["recorded_at"]
    return dict(row) | {"at": row["at"].isoformat(), "recorded_at": recorded.isoformat() if recorded else None}


def events_after(connection: Connection, pipeline: str, after: int, limit: int) -> list[dict[str, Any]]:
    """The events that follow one, oldest first.

    :raises LedgerStateError: if some of them were collected
    """
    gone = known(connection, pipeline).collected_to
    if gone is not None and after < gone:
        raise LedgerStateError(
            f"events up to {gone} were collected, so what followed event {after} is not known any more.",
            pipeline=pipeline,
            hint="Subscribe anew without an event to go on from: that tells what is missing now.",
        )
    c = tables.event.c
    rows = connection.execute(
        sa.select(tables.event).where(c.pipeline == pipeline, c.id > after).order_by(c.id).limit(limit)
    )
    return [as_json(row) for row in rows.mappings()]


def last_event(connection: Connection, pipeline: str) -> int:
    """The newest event's id, 0 if there is none."""
    c = tables.event.c
    return connection.execute(sa.select(sa.func.max(c.id)).where(c.pipeline == pipeline)).scalar_one() or 0


def accounts(
    connection: Connection, pipeline: str, *, now: datetime, settle_lag: timedelta, window: timedelta | None
) -> list[Account]:
    """What is known of each partition above its low watermark.

    :param window: where the low watermark would follow now; as it is stored if None
    """
    known(connection, pipeline)
    stored = partitions(connection, pipeline)
    rows = {name: item.before_row for name, item in stored.items()}
    settled = partition_history.stands(connection, pipeline, now - settle_lag, rows)
    ago = partition_history.stands(connection, pipeline, now - window, rows) if window else {}
    found = []
    for name, item in stored.items():
        part = item.partition
        was = ago.get(name)
        low = low_watermark(item.low, part.committed, was if was and was.generation == part.generation else None)
        receipts = ranges.of_partition(connection, pipeline, name, part.generation, last_at=low)
        receipts += map(RangeReceipt.of, item.unconfirmed.values())
        found.append(Account(part, low, receipts, settled.get(name)))
    return found


def status(connection: Connection, ledger_id: str, pipeline: str) -> dict[str, Any]:
    """All that a person wants to see of a pipeline, JSON-ready; of its receipts the newest, and what all sum up to.

    :raises ConfigError: if the ledger does not know it
    """
    row = known(connection, pipeline)
    stored = partitions(connection, pipeline)
    batches = [batch for item in stored.values() for batch in item.partition.batches.values()]
    receipts = {name: _newest(connection, pipeline, item.partition) for name, item in stored.items()}
    waiting = [b for b in batches if b.state is BatchState.PLANNED and b.error is not None]
    held = [b for b in batches if b.state is BatchState.HELD]
    return {
        "pipeline": pipeline,
        "ledger": ledger_id,
        "phase": row.phase,
        "generation": row.generation,
        "declaration": row.document,
        "lease": _lease(connection, pipeline),
        "begun_by": _begun_by(connection, pipeline),
        "partitions": [_partition(item) for item in stored.values()],
        "batches": _by_state(batches),
        "records": Totals().plus(item.totals for item in stored.values()).to_json(),
        "receipts": {name: lines for name, lines in receipts.items() if lines},
        "held": [_waiting(batch) for batch in held[:_LISTED]],
        "waiting": [_waiting(batch) for batch in waiting[:_LISTED]],
        "dead_letters": _letters(connection, pipeline),
        "events": events(connection, pipeline, 20),
    }


def _newest(connection: Connection, pipeline: str, partition: Partition) -> list[list[int]]:
    found = ranges.newest(connection, pipeline, partition.id, partition.generation, limit=_LISTED)
    return [[r.range.start, r.range.end, r.batches, *r.counts.to_json().values()] for r in found]


def _begun_by(connection: Connection, pipeline: str) -> str | None:
    """Who began batches last, if the newest events tell."""
    c = tables.event.c
    newest = (
        sa.select(c.id, c.kind, c.who).where(c.pipeline == pipeline).order_by(c.id.desc()).limit(_REMEMBERED).subquery()
    )
    begun = sa.select(newest.c.who).where(newest.c.kind == "begun").order_by(newest.c.id.desc()).limit(1)
    return connection.execute(begun).scalar_one_or_none()


def leased(connection: Connection, pipeline: str) -> bool:
    """Whether a run holds the lease now."""
    return bool(_lease(connection, pipeline)["held"])


def _lease(connection: Connection, pipeline: str) -> dict[str, Any]:
    c = tables.lease.c
    row = connection.execute(sa.select(c.owner, c.epoch, c.expires_at).where(c.pipeline == pipeline)).one_or_none()
    if row is None:
        return {"owner": None, "epoch": 0, "expires": None, "held": False}
    held = row.owner is not None and row.expires_at > leases.now(connection)
    return {"owner": row.owner, "epoch": row.epoch, "expires": row.expires_at.isoformat(), "held": held}


def _partition(item: store.Stored) -> dict[str, Any]:
    part: Partition = item.partition
    return {
        "id": part.id,
        "identity": item.identity,
        "generation": part.generation,
        "base": part.base,
        "committed": part.committed,
        "planned_end": part.planned_end,
        "low_watermark": item.low,
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


def _waiting(batch: Batch) -> dict[str, Any]:
    return {
        "batch": str(batch.key),
        "range": [batch.range.start, batch.range.end],
        "attempts": batch.attempts,
        "round": batch.round,
        "instruction": batch.instruction.value,
        "not_before": batch.not_before.isoformat() if batch.not_before else None,
        "error": batch.error.to_json() if batch.error else None,
    }


def _letters(connection: Connection, pipeline: str) -> dict[str, int]:
    """Dead letters that wait for a person or a replay, by error type."""
    c = tables.dead_letter.c
    rows = connection.execute(
        sa.select(c.error_type, sa.func.sum(c.records))
        .where(c.pipeline == pipeline, c.state.in_([state.value for state in UNDELIVERED]))
        .group_by(c.error_type)
        .order_by(c.error_type)
    )
    return {row[0]: int(row[1]) for row in rows}
