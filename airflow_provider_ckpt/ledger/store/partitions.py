"""Load partitions with their batches as state for ``core``, and write back the changes of a command.

The number of SQL statements does not depend on the number of batches, and their cost does not depend on the number of
batches that the checkpoint has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import VERDICT_STATE, AttemptOutcome, Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.partition_history import PartitionSnapshot
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.store import batches as batch_store
from airflow_provider_ckpt.ledger.store import bulk_sql, partition_history, tables
from airflow_provider_ckpt.ledger.store import receipts as receipt_store
from airflow_provider_ckpt.ledger.store.receipted_batches import with_receipts
from airflow_provider_ckpt.ledger.types import PartitionRecord, Totals

_P = tables.partition.c


@dataclass(slots=True, eq=False)
class LoadedPartition:
    """Partition as loaded from its row, with the changes that :func:`write` stores.

    :param partition: positions and batches of the partition, which the functions of ``core`` change
    :param identity: identity of the table, topic partition or file list on which the partition was started
    :param bound: newest closed bound that planning recorded, below which no record can appear any more; None if there
        is none
    :param state: JSON-ready values that the source stored at its last planning and gets back at the next one
    :param unconfirmed: batches below the checkpoint that were sent at most once and not confirmed since, by seq
    :param receipts_to_merge: batches whose receipts the next :func:`write` adds to the stored receipts
    :param ended: by seq, outcome and error type of an attempt that ended; needed only if the outcome does not follow
        from the batch's new state
    :param before: batches as they were loaded or last written, by seq
    :param before_row: the partition's row as it was loaded or last written; empty if the partition is new
    :param complete: whether all batches were loaded; if not, only the batches that the command names, and resolved and
        cancelled batches, were loaded
    :ivar low_watermark: position below which receipts are merged, and from which ``recover`` searches
    :ivar totals: numbers of batches and of their records below the checkpoint in this generation
    :ivar receipted: batches that have a receipt of the newest epoch, see ``receipted_batches.py``; None if there are
        none
    :ivar moved_at: time at which the checkpoint or the end of the plan last moved; None if not known
    :ivar marked_at: time of the newest snapshot in the partition's history; None if there is none
    """

    partition: Partition
    identity: str
    bound: int | None
    state: Mapping[str, Any]
    unconfirmed: dict[int, Batch] = field(default_factory=dict)
    receipts_to_merge: list[Batch] = field(default_factory=list)
    ended: dict[int, tuple[AttemptOutcome, ErrorType | None]] = field(default_factory=dict)
    before: dict[int, Batch] = field(default_factory=dict)
    before_row: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    low_watermark: int = field(init=False)
    totals: Totals = field(init=False)
    receipted: Mapping[str, Any] | None = field(init=False)
    moved_at: datetime | None = field(init=False)
    marked_at: datetime | None = field(init=False)

    def __post_init__(self) -> None:
        row = self.before_row
        self.low_watermark = row.get("low", self.partition.base)
        self.totals = Totals.from_json(row) if row else Totals()
        self.moved_at, self.marked_at = row.get("moved_at"), row.get("marked_at")
        self.receipted = row.get("receipted")

    @property
    def record(self) -> PartitionRecord:
        """The loaded partition as :class:`PartitionRecord`, the type that queries of the ledger return."""
        first = min((batch.range.start for batch in self.unconfirmed.values()), default=None)
        return PartitionRecord(
            self.partition, self.identity, self.state, self.bound, first, self.low_watermark, self.totals
        )

    @property
    def snapshot(self) -> PartitionSnapshot | None:
        """Positions of the partition as it was loaded or last written; None if the partition is new."""
        row = self.before_row
        return PartitionSnapshot(row["generation"], row["committed"], row["planned_end"]) if row else None

    @property
    def rewound(self) -> bool:
        """True if a rewind has ended the generation in which the partition was loaded or last written."""
        return self.snapshot is not None and self.snapshot.generation != self.partition.generation

    def confirm(self, receipt: Receipt) -> bool:
        """Store the receipt of a batch below the checkpoint that was sent at most once.

        Such a batch counts as unconfirmed until its receipt is known.

        :param receipt: a receipt of the sink
        :return: False if the receipt belongs to no unconfirmed batch; nothing is changed then
        """
        batch = self.unconfirmed.get(receipt.key.seq)
        if batch is None or receipt.key.generation != self.partition.generation:
            return False
        del self.unconfirmed[batch.key.seq]
        state = VERDICT_STATE[receipt.verdict]
        self.receipts_to_merge.append(Batch(batch.key, batch.range, state, attempts=batch.attempts, receipt=receipt))
        return True

    def row(self, pipeline: str) -> dict[str, Any]:
        """Return the partition as a row of the table ``partition``.

        :param pipeline: name of the pipeline
        """
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
            "low": self.low_watermark,
            "moved_at": self.moved_at,
            "marked_at": self.marked_at,
            "receipted": self.receipted,
            **self.totals.to_json(),
        }


def load(
    connection: Connection,
    pipeline: str,
    phase: Phase,
    *,
    batches_of: Iterable[str] | Mapping[str, Iterable[int]] | None = None,
) -> dict[str, LoadedPartition]:
    """Return every partition of a pipeline, by id.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param phase: the pipeline's phase
    :param batches_of: ids of the partitions whose batches are loaded; the other partitions must not be changed. If this
        is a mapping from ids to seqs, only the batches with these seqs are loaded, and the resolved and cancelled
        batches, which decide how far the checkpoint moves. None to load all batches of all partitions
    """
    found = connection.execute(sa.select(tables.partition).where(_P.pipeline == pipeline).order_by(_P.partition))
    stored: dict[str, LoadedPartition] = {}
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
        stored[partition.id] = LoadedPartition(
            partition, row["identity"], row["bound"], row["state"], before_row=dict(row)
        )
    if isinstance(batches_of, Mapping):
        known = {name: stored[name].partition.generation for name in batches_of if name in stored}
        keys = [BatchKey(known[name], name, number) for name in known for number in batches_of[name]]
        _add_batches(stored, batch_store.load_some(connection, pipeline, known, keys))
        for name in known:
            stored[name].complete = False
    else:
        _add_batches(stored, batch_store.load_all(connection, pipeline, batches_of))
    return stored


def load_all_batches(connection: Connection, pipeline: str, item: LoadedPartition) -> None:
    """Load the batches of a partition that :func:`load` left out, before a decision that depends on all batches.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param item: the partition, which is changed
    """
    if not item.complete:
        _add_batches({item.partition.id: item}, batch_store.load_all(connection, pipeline, [item.partition.id]))
        item.complete = True


def _add_batches(stored: Mapping[str, LoadedPartition], found: Iterable[Any]) -> None:
    for row in found:
        batch = batch_store.batch_from(row)
        item = stored[batch.key.partition]
        if batch.key.generation == item.partition.generation and batch.key.seq not in item.before:
            _add_batch(item, batch)


def _add_batch(item: LoadedPartition, batch: Batch) -> None:
    item.before[batch.key.seq] = batch
    if batch.state is BatchState.SENT and batch.range.end <= item.partition.committed:
        item.unconfirmed[batch.key.seq] = batch
    else:
        item.partition.batches[batch.key.seq] = batch


def write(connection: Connection, pipeline: str, items: Sequence[LoadedPartition], now: datetime) -> None:
    """Store in the ledger's tables all changes of partitions since they were loaded or last written.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param items: the partitions
    :param now: time of the command, which is stored with attempts that ended and partitions that moved
    """
    changed: list[batch_store.Change] = []
    removed: list[dict[str, Any]] = []
    endings: list[dict[str, Any]] = []
    afters = [_sort_passed_batches(item) for item in items]
    for item, after in zip(items, afters, strict=True):
        fresh = [(was, b) for seq, b in after.items() if (was := item.before.get(seq)) is not b]
        changed += fresh
        resolved = [b.receipt for b in (*item.receipts_to_merge, *(b for _, b in fresh)) if b.receipt is not None]
        item.receipted = with_receipts(item.receipted, item.partition.generation, resolved)
        key = {"pipeline": pipeline, "partition": item.partition.id, "generation": item.before_row.get("generation")}
        removed += batch_store.key_runs(pipeline, (batch.key for seq, batch in item.before.items() if seq not in after))
        endings += [{**key, **ending, "ended_at": now} for ending in _ended_attempts(item, after)]
    bulk_sql.update(connection, tables.attempt, endings, unset="outcome")
    bulk_sql.delete_runs(connection, tables.batch, "seq", removed)
    bulk_sql.delete_runs(connection, tables.attempt, "seq", removed)
    batch_store.write(connection, pipeline, changed)
    _write_receipts(connection, pipeline, items)
    bulk_sql.upsert(
        connection,
        tables.partition_snapshot,
        [m for item in items if (m := partition_history.record_move(pipeline, item, now))],
    )
    new = [item.row(pipeline) for item in items]
    old = [item.before_row for item in items]
    bulk_sql.upsert(connection, tables.partition, [row for row, before in zip(new, old, strict=True) if row != before])
    for item, row, after in zip(items, new, afters, strict=True):
        item.before, item.before_row = after, row
        item.receipts_to_merge, item.ended, item.partition.passed = [], {}, []


def open_attempts(connection: Connection, pipeline: str, batches: Iterable[Batch], run: str, now: datetime) -> None:
    """Insert a row for the open attempt of each batch into the table ``attempt``.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param batches: the batches, already in flight
    :param run: name of the run
    :param now: time at which the attempts began
    """
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
    bulk_sql.insert(connection, tables.attempt, rows)


def _sort_passed_batches(item: LoadedPartition) -> dict[int, Batch]:
    """Decide where batches that the checkpoint has passed are stored; return the batches that keep their row, by seq.

    A batch that was sent at most once goes to ``unconfirmed`` until its receipt arrives; any other batch goes to
    ``receipts_to_merge``. After a rewind all of them go to ``receipts_to_merge``.
    """
    if item.rewound:
        item.receipts_to_merge += item.unconfirmed.values()
        item.unconfirmed.clear()
    for batch in item.partition.passed:
        if batch.state is BatchState.SENT and not item.rewound:
            item.unconfirmed[batch.key.seq] = batch
        else:
            item.receipts_to_merge.append(batch)
    return item.partition.batches | item.unconfirmed


def _write_receipts(connection: Connection, pipeline: str, items: Sequence[LoadedPartition]) -> None:
    """Store the receipts of passed batches, and add the batches and their records to the partitions' totals.

    Receipts below the low watermark are merged into range receipts; above it there is one row per batch. For a
    partition that was rewound, the totals are stored with the generation that has ended.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param items: the partitions
    """
    single: list[Batch] = []
    merged: list[tuple[Any, int]] = []
    ranges: list[receipt_store.RowRange] = []
    ended: list[dict[str, Any]] = []
    for item in items:
        part, snapshot = item.partition, item.snapshot
        low, totals = item.low_watermark, item.totals
        receipts = receipt_store.merge_batches(item.receipts_to_merge)
        if snapshot is not None and item.rewound:
            generation_key = {"pipeline": pipeline, "generation": snapshot.generation, "partition": part.id}
            ended.append({**generation_key, "single_from": low, **totals.plus(receipts).to_json()})
            item.low_watermark, item.totals = part.base, Totals()
        else:
            item.totals = totals.plus(receipts)
            if snapshot is not None and item.before_row["low"] < min(low, snapshot.committed):
                ranges.append(receipt_store.RowRange(part.generation, part.id, item.before_row["low"], low))
        above = [batch for batch in item.receipts_to_merge if batch.range.start >= low]
        single += above
        below = (
            [batch for batch in item.receipts_to_merge if batch.range.start < low] if above else item.receipts_to_merge
        )
        merged += [(receipt, low) for receipt in (receipt_store.merge_batches(below) if above else receipts)]
    receipt_store.compact(connection, pipeline, ranges)
    receipt_store.merge_into_rows(connection, pipeline, merged)
    receipt_store.add_single(connection, pipeline, single)
    bulk_sql.update(connection, tables.generation, ended)


def _ended_attempts(item: LoadedPartition, after: Mapping[int, Batch]) -> Iterable[dict[str, Any]]:
    """Yield seq, outcome and error type of each attempt that ended, for batches that keep their row.

    :param item: the partition
    :param after: batches that keep their row, as :func:`_sort_passed_batches` returns them
    """
    for seq, batch in item.before.items():
        if seq in after and _attempt_ended(batch, after[seq]):
            outcome, error = item.ended.get(seq) or (_outcome(after[seq]), None)
            yield {"seq": seq, "outcome": outcome.value, "error_type": error.value if error else None}


def _outcome(batch: Batch) -> AttemptOutcome:
    return AttemptOutcome(batch.receipt.verdict.value) if batch.receipt else AttemptOutcome.FENCED


def _attempt_ended(before: Batch, after: Batch) -> bool:
    """Return whether a batch's open attempt ended between two states of the batch.

    The attempt of a batch that only got another instruction is still open.

    :param before: the batch as it was loaded
    :param after: the batch after the command
    """
    was_open = before.state in (BatchState.IN_FLIGHT, BatchState.SENT)
    return was_open and (after.state, after.attempts) != (before.state, before.attempts)
