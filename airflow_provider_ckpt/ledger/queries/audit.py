"""Audit a pipeline's data in the ledger: check the named invariants, and account for every position of the source.

The audit reads one snapshot while commands may be running. A quick audit leaves out the merged receipts, so that its
cost does not depend on the length of the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.invariants import (
    PUBLISHED_COMPLETE,
    STALE_EPOCH,
    STATE_CHECKS,
    Violation,
    refresh_violations,
    state_violations,
)
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.sink_audit import LedgerSnapshot
from airflow_provider_ckpt.ledger.queries import range_receipts, sink_state, status
from airflow_provider_ckpt.ledger.store import dead_letter_index, partitions, tables

ATTEMPTS_MATCH_BATCHES = "AttemptsMatchBatches"
"""Invariant: every batch in flight has exactly one open attempt, and no other batch has one."""

DEAD_LETTERS_ARE_INDEXED = "DeadLettersAreIndexed"
"""Invariant: the dead letter index contains at least as many dead letters as the receipts count."""


def audit(connection: Connection, pipeline: str, *, quick: bool) -> dict[str, Any]:
    """Check a pipeline's data in the ledger against the package's invariants, and return the result.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param quick: whether to leave out the merged receipts, so that the whole history is not read
    :return: JSON-ready dict of the invariants that were checked, the violations (``ok`` is true if there are none), and
        for each partition its positions, its counts, and the ranges that no batch accounts for
    :raises ConfigError: if the ledger does not know the pipeline
    """
    status.require_pipeline(connection, pipeline)
    epoch = _epoch(connection, pipeline)
    stored = status.partitions(connection, pipeline)
    found: list[Violation] = []
    accounted: dict[str, dict[str, Any]] = {}
    read = 0
    for item in stored.values():
        passed = _passed_receipts(connection, pipeline, item, quick=quick)
        read += len(passed)
        passed += _unconfirmed_receipts(item, passed, quick=quick)
        found += [*_violations(item, passed, epoch, quick=quick), *refresh_violations(item.partition, item.state)]
        accounted[item.partition.id] = _account(item, passed)
    found += _attempt_violations(connection, pipeline, stored)
    if not quick:
        found += _dead_letter_violations(connection, pipeline)
    names = [*STATE_CHECKS, STALE_EPOCH, PUBLISHED_COMPLETE, ATTEMPTS_MATCH_BATCHES]
    names += [] if quick else [DEAD_LETTERS_ARE_INDEXED]
    return {
        "pipeline": pipeline,
        "ok": not found,
        "quick": quick,
        "checked": {
            "invariants": names,
            "partitions": len(stored),
            "batches": sum(len(item.before) for item in stored.values()),
            "receipts": read,
        },
        "violations": [
            {"name": v.name, "partition": v.partition, "message": v.message, "position": v.position} for v in found
        ],
        "accounted": accounted,
    }


def load_snapshot(connection: Connection, pipeline: str) -> LedgerSnapshot:
    """Return the ledger's receipts, batches and numbers of dead letters, for the comparison with the sink.

    :raises ConfigError: if the ledger does not know the pipeline
    """
    status.require_pipeline(connection, pipeline)
    stored = status.partitions(connection, pipeline).values()
    named: Counter[AttemptKey] = Counter()
    for entry in dead_letter_index.load(connection, pipeline):
        named[entry.dead_letters.source] += entry.dead_letters.records
    return LedgerSnapshot(
        range_receipts.load(connection, pipeline),
        {
            batch.key: batch
            for item in stored
            for batch in [*item.partition.batches.values(), *item.unconfirmed.values()]
        },
        {item.partition.id: item.partition.generation for item in stored},
        named,
        busy=status.is_leased(connection, pipeline),
        accepted=sink_state.accepted(connection, pipeline),
    )


def _epoch(connection: Connection, pipeline: str) -> int:
    c = tables.lease.c
    return connection.execute(sa.select(c.epoch).where(c.pipeline == pipeline)).scalar_one_or_none() or 0


def _passed_receipts(
    connection: Connection, pipeline: str, item: partitions.LoadedPartition, *, quick: bool
) -> list[RangeReceipt]:
    partition = item.partition
    last_at = partition.committed if quick else None
    return range_receipts.of_partition(connection, pipeline, partition.id, partition.generation, last_at=last_at)


def _unconfirmed_receipts(
    item: partitions.LoadedPartition, passed: Sequence[RangeReceipt], *, quick: bool
) -> list[RangeReceipt]:
    """Return range receipts, one per batch, for batches that were sent at most once and never confirmed.

    These batches lie below the checkpoint and are not part of the stored range receipts, so the audit adds them.

    :param item: the partition
    :param passed: the stored range receipts that the audit has read
    :param quick: whether to leave out batches before the first of these range receipts
    """
    first = passed[0].range.start if quick and passed else item.partition.base
    return [RangeReceipt.of(batch) for batch in item.unconfirmed.values() if batch.range.start >= first]


def _violations(
    item: partitions.LoadedPartition, passed: Sequence[RangeReceipt], epoch: int, *, quick: bool
) -> list[Violation]:
    partition = item.partition
    base = partition.base
    if quick and passed:
        partition.base = max(base, min(receipt.range.start for receipt in passed))
    try:
        return state_violations(partition, passed, epoch=epoch)
    finally:
        partition.base = base


def _account(item: partitions.LoadedPartition, passed: Sequence[RangeReceipt]) -> dict[str, Any]:
    """Return how the positions of a partition are accounted for, as a JSON-ready dict for the output of the audit.

    It contains the partition's positions, its counts of records, the numbers of batches by state, and the ranges that
    no batch covers.

    :param item: the partition
    :param passed: the range receipts of its generation
    """
    partition = item.partition
    counts = sum((receipt.counts for receipt in passed), Counts())
    states: dict[str, int] = {}
    for batch in partition.batches.values():
        states[batch.state.value] = states.get(batch.state.value, 0) + 1
        if batch.receipt is not None:
            counts += batch.receipt.counts
    return {
        "from": partition.base,
        "checkpoint": partition.committed,
        "planned_to": partition.planned_end,
        "records": counts.to_json(),
        "batches": sum(receipt.batches for receipt in passed),
        "rejected": sum(receipt.rejected for receipt in passed),
        "skipped": sum(receipt.skipped for receipt in passed),
        "sent_at_most_once": sum(receipt.sent for receipt in passed),
        "unresolved": states,
        "unaccounted": [[gap.start, gap.end] for gap in partition.gaps()],
    }


def _attempt_violations(
    connection: Connection, pipeline: str, stored: dict[str, partitions.LoadedPartition]
) -> list[Violation]:
    c = tables.attempt.c
    rows = connection.execute(
        sa.select(c.generation, c.partition, c.seq).where(c.pipeline == pipeline, c.outcome.is_(None))
    )
    opened = Counter(BatchKey(*row) for row in rows)
    sent = {batch.key for item in stored.values() for batch in item.before.values() if batch.state is BatchState.SENT}
    flying = {batch.key for item in stored.values() for batch in item.partition.in_flight.values()}
    wrong = dict.fromkeys(flying - opened.keys(), "is in flight without an open attempt")
    wrong |= dict.fromkeys(opened.keys() - flying - sent, "has an open attempt, but is not in flight")
    wrong |= {key: f"has {number} open attempts" for key, number in opened.items() if number > 1}
    return [Violation(ATTEMPTS_MATCH_BATCHES, key.partition, f"{key} {what}") for key, what in wrong.items()]


def _dead_letter_violations(connection: Connection, pipeline: str) -> list[Violation]:
    entry, receipt, batch = tables.dead_letter.c, tables.receipt.c, tables.batch
    indexed = connection.execute(sa.select(sa.func.sum(entry.records)).where(entry.pipeline == pipeline)).scalar()
    merged = connection.execute(
        sa.select(sa.func.sum(receipt.dead_lettered)).where(receipt.pipeline == pipeline)
    ).scalar()
    pending = connection.execute(
        sa.select(batch.c.receipt).where(batch.c.pipeline == pipeline, batch.c.receipt.is_not(None))
    ).scalars()
    expected = int(merged or 0) + sum(document["counts"]["dead_lettered"] for document in pending)
    if int(indexed or 0) >= expected:
        return []
    return [
        Violation(
            DEAD_LETTERS_ARE_INDEXED, "", f"receipts count {expected} dead letters, and {int(indexed or 0)} are indexed"
        )
    ]
