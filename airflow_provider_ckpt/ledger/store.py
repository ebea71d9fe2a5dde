"""Loads partitions as the core's pure state, and writes back what a command changed.

The number of statements does not depend on the number of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import VERDICT_STATE, AttemptOutcome, Batch, BatchState, Receipt
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.tickets import Phase
from airflow_provider_ckpt.ledger import receipts, tables
from airflow_provider_ckpt.ledger.bulk import among, insert, upsert
from airflow_provider_ckpt.ledger.records import PartitionRecord
from airflow_provider_ckpt.ledger.rows import BATCH_COLUMNS, batch_from, batch_row

_P = tables.partition.c
_B = tables.batch.c
_A = tables.attempt.c


@dataclass(slots=True)
class Stored:
    """A partition as loaded, and what it was like then.

    :param unconfirmed: batches below the checkpoint that were sent at most once and not heard of since
    :param ended: how attempts ended, where the batch's new state does not say it
    """

    partition: Partition
    identity: str
    bound: int | None
    state: Mapping[str, Any]
    unconfirmed: dict[int, Batch] = field(default_factory=dict)
    merged: list[Batch] = field(default_factory=list)
    ended: dict[int, tuple[AttemptOutcome, ErrorType | None]] = field(default_factory=dict)
    before: dict[int, Batch] = field(default_factory=dict)
    before_row: dict[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> PartitionRecord:
        """The same, for callers outside the ledger."""
        first = min((batch.range.start for batch in self.unconfirmed.values()), default=None)
        return PartitionRecord(self.partition, self.identity, self.state, self.bound, first)

    def confirm(self, receipt: Receipt) -> bool:
        """Resolve a batch that was sent at most once, now that its receipt is known; says whether there was one."""
        batch = self.unconfirmed.get(receipt.key.seq)
        if batch is None or receipt.key.generation != self.partition.generation:
            return False
        del self.unconfirmed[batch.key.seq]
        state = VERDICT_STATE[receipt.verdict]
        self.merged.append(Batch(batch.key, batch.range, state, attempts=batch.attempts, receipt=receipt))
        return True

    def row(self, pipeline: str) -> dict[str, Any]:
        """The partition's own row."""
        part = self.partition
        return {
            "pipeline": pipeline,
            "partition": part.id,
            "identity": self.identity,
            "generation": part.generation,
            "base": part.base,
            "committed": part.committed,
            "next_seq": part.next_seq,
            "planned_end": part.planned_end,
            "side_end": part.limit,
            "bound": self.bound,
            "state": dict(self.state),
        }


def load(
    connection: Connection, pipeline: str, phase: Phase, *, batches_of: Iterable[str] | None = None
) -> dict[str, Stored]:
    """Every partition of a pipeline, by id.

    :param batches_of: load the batches of these only (all by default); the others must not be changed
    """
    found = connection.execute(sa.select(tables.partition).where(_P.pipeline == pipeline).order_by(_P.partition))
    stored: dict[str, Stored] = {}
    for row in found.mappings():
        partition = Partition(
            row["partition"],
            generation=row["generation"],
            base=row["base"],
            committed=row["committed"],
            next_seq=row["next_seq"],
            planned_end=row["planned_end"],
            limit=row["side_end"],
            phase=phase,
        )
        stored[partition.id] = Stored(partition, row["identity"], row["bound"], row["state"], before_row=dict(row))
    query = sa.select(*BATCH_COLUMNS).where(_B.pipeline == pipeline)
    if batches_of is not None:
        query = query.where(_B.partition.in_(sorted(set(batches_of))))
    for columns in connection.execute(query.order_by(_B.generation, _B.partition, _B.seq)):
        batch = batch_from(columns)
        _place(stored[batch.key.partition], batch)
    return stored


def _place(item: Stored, batch: Batch) -> None:
    if batch.key.generation != item.partition.generation:
        return
    item.before[batch.key.seq] = batch
    if batch.state is BatchState.SENT and batch.range.end <= item.partition.committed:
        item.unconfirmed[batch.key.seq] = batch
    else:
        item.partition.batches[batch.key.seq] = batch


def write(connection: Connection, pipeline: str, items: Sequence[Stored], now: datetime) -> None:
    """Write the difference between what was loaded and what it has become."""
    changed: list[Batch] = []
    for item in items:
        rewound = bool(item.before) and item.before_row["generation"] != item.partition.generation
        if rewound:
            item.merged += item.unconfirmed.values()
            item.unconfirmed.clear()
        for batch in item.partition.passed:
            if batch.state is BatchState.SENT and not rewound:
                item.unconfirmed[batch.key.seq] = batch
            else:
                item.merged.append(batch)
        after = item.partition.batches | item.unconfirmed
        changed += [batch for seq, batch in after.items() if item.before.get(seq) is not batch]
        gone = [seq for seq in item.before if seq not in after]
        _end_attempts(connection, pipeline, item, after, now)
        for table in (tables.batch, tables.attempt) if gone else ():
            _delete(connection, table, pipeline, item, gone)
    upsert(connection, tables.batch, [batch_row(pipeline, batch) for batch in changed])
    receipts.write(connection, pipeline, [batch for item in items for batch in item.merged])
    rows = [(item, item.row(pipeline)) for item in items]
    upsert(connection, tables.partition, [row for item, row in rows if row != item.before_row])


def open_attempts(connection: Connection, pipeline: str, batches: Iterable[Batch], run: str, now: datetime) -> None:
    """Record attempts as open."""
    rows = [
        {
            "pipeline": pipeline,
            "generation": batch.key.generation,
            "partition": batch.key.partition,
            "seq": batch.key.seq,
            "attempt": batch.attempts,
            "epoch": batch.epoch,
            "run": run,
            "began_at": now,
        }
        for batch in batches
    ]
    insert(connection, tables.attempt, rows)


def _end_attempts(
    connection: Connection, pipeline: str, item: Stored, after: Mapping[int, Batch], now: datetime
) -> None:
    groups: dict[tuple[AttemptOutcome, ErrorType | None], list[int]] = {}
    for seq, batch in item.before.items():
        if seq in after and after[seq] is not batch and batch.state in (BatchState.IN_FLIGHT, BatchState.SENT):
            ending = item.ended.get(seq) or (_outcome(after[seq]), None)
            groups.setdefault(ending, []).append(seq)
    for (outcome, error), seqs in groups.items():
        connection.execute(
            tables.attempt.update()
            .where(
                _A.pipeline == pipeline,
                _A.generation == item.partition.generation,
                _A.partition == item.partition.id,
                among(connection, _A.seq, seqs),
                _A.outcome.is_(None),
            )
            .values(outcome=outcome.value, error_type=error.value if error else None, ended_at=now)
        )


def _outcome(batch: Batch) -> AttemptOutcome:
    return AttemptOutcome(batch.receipt.verdict.value) if batch.receipt else AttemptOutcome.FENCED


def _delete(connection: Connection, table: sa.Table, pipeline: str, item: Stored, seqs: list[int]) -> None:
    columns = table.c
    connection.execute(
        table.delete().where(
            columns.pipeline == pipeline,
            columns.generation == item.before_row["generation"],
            columns.partition == item.partition.id,
            among(connection, columns.seq, seqs),
        )
    )
