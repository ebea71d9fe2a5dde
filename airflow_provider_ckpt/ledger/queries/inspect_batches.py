"""Query details of one batch, of one partition, or of all unresolved batches, for ``airflow ckpt inspect``.

Of a batch that the checkpoint has passed, the ledger keeps only the receipt, its dead letters and events.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.ledger.queries import range_receipts, status
from airflow_provider_ckpt.ledger.store import partitions, tables

_EVENTS = 100
_RECEIPTS = 100


def inspect(connection: Connection, pipeline: str, what: BatchKey | str | None) -> dict[str, Any]:
    """Return details of a batch, of a partition, or of all unresolved batches; JSON-ready.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param what: key of a batch, id of a partition, or None for all unresolved batches
    :raises ConfigError: if the ledger does not know the pipeline
    :raises LedgerStateError: if the ledger does not know the batch or partition
    """
    if what is None:
        return _unresolved(connection, pipeline)
    if isinstance(what, BatchKey):
        return _batch(connection, pipeline, what)
    return _partition(connection, pipeline, what)


def _unresolved(connection: Connection, pipeline: str) -> dict[str, Any]:
    """Return all batches that block a checkpoint, and the gaps of each partition, as a JSON-ready dict.

    Gaps are ranges beyond the checkpoint that were planned and that no batch covers any more.
    """
    phase = status.require_pipeline(connection, pipeline).phase
    stored = status.partitions(connection, pipeline)
    blocking = [batch for item in stored.values() for batch in item.partition.blocking.values()]
    return {
        "pipeline": pipeline,
        "phase": phase,
        "batches": [_describe(batch) for batch in blocking],
        "gaps": {name: gaps for name, item in stored.items() if (gaps := _gaps(item))},
    }


def _partition(connection: Connection, pipeline: str, name: str) -> dict[str, Any]:
    """Return details of one partition as a JSON-ready dict.

    It contains the positions, the generations, the newest receipts, and the batches beyond the checkpoint.
    """
    item = _item(connection, pipeline, name)
    part = item.partition
    c = tables.generation.c
    generations = connection.execute(
        sa.select(c.generation, c.base, c.committed, c.started_at, c.ended_at, c.reason)
        .where(c.pipeline == pipeline, c.partition == name)
        .order_by(c.generation)
    )
    passed = _newest_receipts(connection, pipeline, name, part.generation)
    return {
        "pipeline": pipeline,
        "partition": name,
        "identity": item.identity,
        "generation": part.generation,
        "base": part.base,
        "checkpoint": part.committed,
        "low_watermark": item.low_watermark,
        "planned_to": part.planned_end,
        "ends_at": part.limit,
        "source_known_to": item.bound,
        "next_seq": part.next_seq,
        "gaps": _gaps(item),
        "cancellation_watermark": part.cancellation_watermark,
        "unconfirmed": len(item.unconfirmed),
        "records": item.totals.to_json(),
        "batches": [_describe(batch) for batch in part.batches.values()],
        "receipts": [
            {
                "from": receipt.range.start,
                "to": receipt.range.end,
                "batches": receipt.batches,
                **receipt.counts.to_json(),
                "rejected": receipt.rejected,
                "skipped": receipt.skipped,
                "sent": receipt.sent,
            }
            for receipt in passed
        ],
        "generations": [
            {
                "generation": row.generation,
                "base": row.base,
                "checkpoint": row.committed,
                "started": row.started_at.isoformat(),
                "ended": row.ended_at.isoformat() if row.ended_at else None,
                "reason": row.reason,
            }
            for row in generations
        ],
    }


def _batch(connection: Connection, pipeline: str, key: BatchKey) -> dict[str, Any]:
    """Return details of one batch as a JSON-ready dict: its stored values, attempts, dead letters and newest events.

    If the ledger stores the batch no longer, a remark says why, such as ``resolved: the checkpoint has passed it …``.

    :raises LedgerStateError: if the partition has no such batch
    """
    item = _item(connection, pipeline, key.partition)
    part = item.partition
    found = part.batches.get(key.seq) or item.unconfirmed.get(key.seq) if key.generation == part.generation else None
    if key.generation > part.generation or (key.generation == part.generation and key.seq >= part.next_seq):
        raise LedgerStateError(
            "there is no such batch.",
            pipeline=pipeline,
            batch=str(key),
            hint=f"The partition is in generation {part.generation}; {part.next_seq} is the next number there.",
        )
    known: dict[str, Any] = {"batch": str(key), "state": None} if found is None else _describe(found)
    return {
        "pipeline": pipeline,
        **known,
        "remark": None if found is not None else _remark(key, part.generation),
        "attempt_history": _attempts(connection, pipeline, key),
        "dead_letters": _dead_letters(connection, pipeline, key),
        "events": _events(connection, pipeline, key),
    }


def _describe(batch: Batch) -> dict[str, Any]:
    """Return the values that the ledger stores of a batch as a JSON-ready dict, for ``airflow ckpt inspect``."""
    return {
        "batch": str(batch.key),
        "state": batch.state.value,
        "range": [batch.range.start, batch.range.end],
        "records": batch.records,
        "instruction": batch.instruction.value,
        "attempts": batch.attempts,
        "round": batch.round,
        "failures": batch.failures,
        "deaths": batch.deaths,
        "alone": batch.alone,
        "cancelled": batch.cancelled,
        "not_before": batch.not_before.isoformat() if batch.not_before else None,
        "epoch": batch.epoch,
        "error": batch.error.to_json() if batch.error else None,
        "receipt": batch.receipt.to_json() if batch.receipt else None,
    }


def _remark(key: BatchKey, generation: int) -> str:
    if key.generation < generation:
        return f"its generation has ended; the partition is in {generation} now"
    return "resolved: the checkpoint has passed it, and its receipt is merged with its neighbours'"


def _item(connection: Connection, pipeline: str, name: str) -> partitions.LoadedPartition:
    phase = Phase(status.require_pipeline(connection, pipeline).phase)
    stored = partitions.load(connection, pipeline, phase, batches_of=[name])
    if name not in stored:
        known = ", ".join(list(stored)[:10]) or "none yet"
        raise LedgerStateError(f"there is no partition {name!r}.", pipeline=pipeline, hint=f"Known: {known}.")
    return stored[name]


def _gaps(item: partitions.LoadedPartition) -> list[list[int]]:
    return [[gap.start, gap.end] for gap in item.partition.gaps()]


def _newest_receipts(connection: Connection, pipeline: str, name: str, generation: int) -> list[RangeReceipt]:
    """Return the newest range receipts of a partition and generation in order, at most about 100.

    Above the low watermark there is one receipt per batch, so the list of all receipts could be long.
    """
    c = tables.receipt.c
    first = connection.execute(
        sa.select(c.range_start)
        .where(c.pipeline == pipeline, c.generation == generation, c.partition == name)
        .order_by(c.range_start.desc())
        .offset(_RECEIPTS - 1)
        .limit(1)
    ).scalar_one_or_none()
    last_at = None if first is None else first + 1
    return range_receipts.of_partition(connection, pipeline, name, generation, last_at=last_at)


def _belongs_to(table: sa.Table, pipeline: str, key: BatchKey) -> sa.ColumnElement[bool]:
    c = table.c
    return sa.and_(
        c.pipeline == pipeline, c.generation == key.generation, c.partition == key.partition, c.seq == key.seq
    )


def _attempts(connection: Connection, pipeline: str, key: BatchKey) -> list[dict[str, Any]]:
    c = tables.attempt.c
    rows = connection.execute(
        sa.select(c.attempt, c.epoch, c.run, c.began_at, c.ended_at, c.outcome, c.error_type)
        .where(_belongs_to(tables.attempt, pipeline, key))
        .order_by(c.attempt)
    )
    return [
        {
            "attempt": row.attempt,
            "epoch": row.epoch,
            "run": row.run,
            "began": row.began_at.isoformat(),
            "ended": row.ended_at.isoformat() if row.ended_at else None,
            "outcome": row.outcome,
            "error_type": row.error_type,
        }
        for row in rows
    ]


def _dead_letters(connection: Connection, pipeline: str, key: BatchKey) -> dict[str, int]:
    c = tables.dead_letter.c
    rows = connection.execute(
        sa.select(c.error_type, sa.func.sum(c.records).label("records"))
        .where(_belongs_to(tables.dead_letter, pipeline, key))
        .group_by(c.error_type)
        .order_by(c.error_type)
    )
    return {row.error_type: int(row.records) for row in rows}


def _events(connection: Connection, pipeline: str, key: BatchKey) -> list[dict[str, Any]]:
    c = tables.event.c
    rows = connection.execute(
        sa.select(tables.event).where(_belongs_to(tables.event, pipeline, key)).order_by(c.id.desc()).limit(_EVENTS)
    )
    return [status.event_to_json(row) for row in rows.mappings()][::-1]
