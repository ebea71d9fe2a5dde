"""Load the partitions of a pipeline for one command, after checking its lease, and write back the changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorType, LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.store import bulk_sql, events, partitions, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import Lease, PartitionRecord

TouchedBatches = Iterable[str] | Mapping[str, Iterable[int]] | None
"""Ids of the partitions that a command may change, or a mapping from these ids to seqs of batches; None for all."""


class UnitOfWork:
    """Partitions of a pipeline, loaded for one command under its lease, with the events that the command causes.

    :param connection: connection inside the command's transaction
    :param lease: lease to check; its row stays locked until the transaction ends
    :param now: time that is stored with events and attempts, UTC
    :param touch: ids of the partitions whose batches the command may change; None for all. If this is a mapping from
        ids to seqs, only the batches with these seqs are loaded, and the resolved and cancelled batches, which decide
        how far the checkpoint moves
    :raises StaleEpochError: if the lease has another epoch or owner now
    """

    def __init__(self, connection: Connection, lease: Lease, now: datetime, touch: TouchedBatches = None) -> None:
        lease_store.check(connection, lease.pipeline, lease.epoch, lease.owner)
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
        self.pipeline_state = PipelineState(
            (item.partition for item in self.stored.values()), phase=Phase(phase), generation=generation
        )
        self.events: list[Event] = []

    @property
    def touched_partitions(self) -> list[partitions.LoadedPartition]:
        """The loaded partitions that the command may change."""
        return [item for name, item in self.stored.items() if self.touched is None or name in self.touched]

    @property
    def records(self) -> dict[str, PartitionRecord]:
        """The loaded partitions by id, as queries of the ledger return them."""
        return {name: item.record for name, item in self.stored.items()}

    @property
    def checkpoint(self) -> dict[str, int]:
        """The checkpoint of every partition of the pipeline, by partition id."""
        return {name: item.partition.committed for name, item in self.stored.items()}

    @property
    def replays(self) -> dict[str, Replay]:
        """Replays of dead letters, by the id of the side partition that sends them."""
        return {
            name: Replay.from_json(item.state)
            for name, item in self.stored.items()
            if BatchKey(item.partition.generation, name, 0).is_replay
        }

    def item(self, partition: str) -> partitions.LoadedPartition:
        """Return a loaded partition with its batches and stored values, by its id.

        :raises LedgerStateError: if the partition was never started in this ledger
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
        """Return the partition of a batch; its methods change the batch.

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

    def batch_in_flight(self, key: BatchKey) -> Batch | None:
        """Return a batch if it is in flight under this lease's epoch; None otherwise.

        A run that receives outcomes from Spark may only end attempts of its own epoch with them.
        """
        item = self.stored.get(key.partition)
        if item is None or item.partition.generation != key.generation:
            return None
        batch = item.partition.batches.get(key.seq)
        if batch is None or batch.state is not BatchState.IN_FLIGHT or batch.epoch != self.lease.epoch:
            return None
        return batch

    def ended(self, key: BatchKey, outcome: AttemptOutcome, error: ErrorType | None = None) -> None:
        """Record the outcome of a batch's attempt, which :meth:`store` writes to the table of attempts.

        :param key: the batch
        :param outcome: outcome of the attempt
        :param error: type of the attempt's error; None unless it failed
        """
        self.item(key.partition).ended[key.seq] = (outcome, error)

    def advance(self) -> None:
        """Move the checkpoint of every partition that the command may change over its resolved batches."""
        for item in self.touched_partitions:
            self.events += item.partition.advance()

    def store(self) -> None:
        """Write the changes of partitions, batches, phase and generation to the tables, without events."""
        pipeline = self.lease.pipeline
        partitions.write(self.connection, pipeline, self.touched_partitions, self.now)
        after = (self.pipeline_state.phase, self.pipeline_state.generation)
        if after != self._before:
            self.connection.execute(
                tables.pipeline.update()
                .where(tables.pipeline.c.name == pipeline)
                .values(phase=after[0].value, generation=after[1])
            )
            self._before = after

    def write(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Write the changes, an event for each unusual transition, and one event that summarises the command.

        The usual transitions of batches (planned, begun, delivered, not attempted) are only counted in the summary.

        :param kind: kind of the summary event
        :param detail: detail of the summary event, JSON-ready
        """
        self.store()
        rows = events.event_rows(self.lease, self.now, self.events)
        rows.append(events.event_row(self.lease, self.now, kind, detail))
        bulk_sql.insert(self.connection, tables.event, rows)
