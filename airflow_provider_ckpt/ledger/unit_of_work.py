"""One command's unit of work: lock the lease, check the epoch, load the pure state, write the difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, BatchKey, BatchState
from airflow_provider_ckpt.core.dead_letters import Replay
from airflow_provider_ckpt.core.errors import ErrorType, LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.pipeline_phases import PipelineMachine
from airflow_provider_ckpt.core.tickets import Event, Phase
from airflow_provider_ckpt.ledger.store import bulk_sql, events, partitions, tables
from airflow_provider_ckpt.ledger.store import lease as leases
from airflow_provider_ckpt.ledger.types import Lease

Touch = Iterable[str] | Mapping[str, Iterable[int]] | None


class Work:
    """What a command sees and changes.

    :param connection: inside the command's transaction
    :param lease: checked here, under the row's lock, which lasts to the end of the transaction
    :param now: UTC; stamps events and attempts
    :param touch: partitions whose batches the command may change; None is all of them. Where it maps them to numbers,
        only the batches that those name are loaded, and what decides how far the checkpoint moves
    :raises StaleEpochError: if the lease is no longer ours
    """

    def __init__(self, connection: Connection, lease: Lease, now: datetime, touch: Touch = None) -> None:
        leases.check(connection, lease.pipeline, lease.epoch, lease.owner)
        self.connection = connection
        self.lease = lease
        self.now = now
        columns = tables.pipeline.c
        phase, generation = connection.execute(
            sa.select(columns.phase, columns.generation).where(columns.name == lease.pipeline)
        ).one()
        self._before = (Phase(phase), generation)
        self.touched = None if touch is None else frozenset(touch)
        self.stored = partitions.load(connection, lease.pipeline, Phase(phase), batches_of=touch)
        self.machine = PipelineMachine(
            (item.partition for item in self.stored.values()), phase=Phase(phase), generation=generation
        )
        self.events: list[Event] = []

    @property
    def changing(self) -> list[partitions.Stored]:
        """The partitions that the command may change."""
        return [item for name, item in self.stored.items() if self.touched is None or name in self.touched]

    @property
    def checkpoint(self) -> dict[str, int]:
        """The committed position of every partition."""
        return {name: item.partition.committed for name, item in self.stored.items()}

    @property
    def replays(self) -> dict[str, Replay]:
        """What each side partition of dead letters sends once more."""
        return {
            name: Replay.from_json(item.state)
            for name, item in self.stored.items()
            if BatchKey(item.partition.generation, name, 0).letters
        }

    def item(self, partition: str) -> partitions.Stored:
        """A partition with its batches.

        :raises LedgerStateError: if the ledger does not know it
        """
        found = self.stored.get(partition)
        if found is None:
            raise LedgerStateError(
                f"partition {partition!r} was never started in this ledger.",
                pipeline=self.lease.pipeline,
                hint="Its first position must be declared before anything else is stored of it.",
            )
        return found

    def partition(self, key: BatchKey) -> Partition:
        """The pure state that a batch belongs to.

        :raises LedgerStateError: if the batch is of another generation, or its partition is unknown
        """
        partition = self.item(key.partition).partition
        if key.generation != partition.generation:
            raise LedgerStateError(
                f"generation {key.generation} is not the current one, {partition.generation}.",
                pipeline=self.lease.pipeline,
                batch=str(key),
            )
        return partition

    def open_batch(self, key: BatchKey) -> Batch | None:
        """The batch, if it is in flight under this lease's epoch."""
        item = self.stored.get(key.partition)
        if item is None or item.partition.generation != key.generation:
            return None
        batch = item.partition.batches.get(key.seq)
        if batch is None or batch.state is not BatchState.IN_FLIGHT or batch.epoch != self.lease.epoch:
            return None
        return batch

    def ended(self, key: BatchKey, outcome: AttemptOutcome, error: ErrorType | None = None) -> None:
        """Note how the open attempt of a batch ended."""
        self.item(key.partition).ended[key.seq] = (outcome, error)

    def advance(self) -> None:
        """Move the checkpoint of every partition that the command may change."""
        for item in self.changing:
            self.events += item.partition.advance()

    def store(self) -> None:
        """Store what changed, without a word in the audit trail."""
        pipeline = self.lease.pipeline
        partitions.write(self.connection, pipeline, self.changing, self.now)
        after = (self.machine.phase, self.machine.generation)
        if after != self._before:
            self.connection.execute(
                tables.pipeline.update()
                .where(tables.pipeline.c.name == pipeline)
                .values(phase=after[0].value, generation=after[1])
            )
            self._before = after

    def write(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Store what changed, the noteworthy events, and one that sums the command up."""
        self.store()
        rows = events.noteworthy(self.lease, self.now, self.events)
        rows.append(events.row(self.lease, self.now, kind, detail))
        bulk_sql.insert(self.connection, tables.event, rows)
