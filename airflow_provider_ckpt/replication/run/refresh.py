"""Refresh partitions in a run: replace all their rows, by a generation that is published when every row is staged.

``core/refresh.py`` decides the next step of a refresh. A refresh begins in the process that executes its waves, because
its snapshot ends with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import ReplacingSink, unwrapped
from airflow_provider_ckpt.connectors.source_protocol import RefreshedSource
from airflow_provider_ckpt.core.batch import Batch, Instruction
from airflow_provider_ckpt.core.on_exhausted import OnExhausted
from airflow_provider_ckpt.core.refresh import RefreshExtent, RefreshStep, is_unpublished, next_step
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.replication.setup import utcnow

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
    from airflow_provider_ckpt.ledger.types import PartitionRecord
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)

_EVERY_RUN = "each run refreshes"
_SNAPSHOT_ENDED = "the snapshot of generation {} ended with the process that read it"
_STAGING_LOST = "rows of generation {} were skipped, or lost after they were staged"


class Refresh:
    """Begins and publishes the refreshes of one :class:`Run`.

    :param run: run in progress, whose lease is held and whose source and sink are open
    """

    def __init__(self, run: Run) -> None:
        assert isinstance(run.source, RefreshedSource)
        sink = unwrapped(run.sink)
        assert isinstance(sink, ReplacingSink)
        self._run = run
        self._source: RefreshedSource = run.source
        self._sink: ReplacingSink = sink
        self._begun: set[str] = set()

    def publication(self, due: Sequence[Batch]) -> Batch | None:
        """Return the first of the given batches that publishes a refresh; None if none of them does.

        This batch must not go to a lane: :meth:`publish` executes it.

        :param due: planned batches whose next attempt may begin now
        """
        extents = {name: RefreshExtent.of(record.state) for name, record in self._records().items()}
        for batch in due:
            extent = extents[batch.key.partition]
            if not batch.key.is_side_partition and extent is not None and batch.range == extent.publication:
                return batch
        return None

    def advance(self) -> bool:
        """Begin a refresh of each partition that has no refresh to continue; return whether any refresh was begun.

        A run begins at most one refresh of a partition.
        """
        records = [(name, record) for name, record in self._records().items() if _may_refresh(record)]
        due = [(name, record) for name, record in records if self._step(name, record) is RefreshStep.BEGIN]
        for name, record in due:
            self._begin(name, record)
        return bool(due)

    def publish(self, batch: Batch) -> Outcome | None:
        """Publish a refresh, and return the outcome of its publishing batch; None if the batch is held instead.

        The batch is held, until a user decides, if the refresh would remove more rows than ``sink.replace`` allows
        without approval.

        :param batch: the publishing batch, which is planned
        """
        run = self._run
        extent = RefreshExtent.of(self._records()[batch.key.partition].state)
        assert extent is not None
        limits = None if extent.questioned else run.pipeline.sink.replaces
        if batch.instruction is Instruction.DELIVER:
            staged, present = self._sink.row_counts(batch.key)
            refusal_reason = None if limits is None else limits.refusal_reason(staged, present)
            if refusal_reason is not None:
                self._hold(batch, refusal_reason)
                return None
            log.info(
                "%s: publishing %s: %s rows replace %s", run.pipeline.name, batch.key, f"{staged:,}", f"{present:,}"
            )
        run.ledger.begin(run.lease, [batch.key], now=utcnow(), run=run.id)
        task = BatchTask(batch.key, batch.range, batch.attempts + 1, batch.instruction)
        return self._sink.publish(task, run.epoch, limits)

    def _step(self, name: str, record: PartitionRecord) -> RefreshStep:
        extent = RefreshExtent.of(record.state)
        own = extent is not None and self._source.holds_snapshot(extent.snapshot)

        def is_staged() -> bool:
            assert extent is not None
            batches = record.partition.blocking.values()
            publishing = [batch.key for batch in batches if batch.range == extent.publication]
            return any(self._sink.is_staged(key, extent.rows_end) for key in publishing)

        return next_step(record.partition, extent, own=own, begun=name in self._begun, is_staged=is_staged)

    def _begin(self, name: str, record: PartitionRecord) -> None:
        """Begin a refresh of a partition: take a snapshot, begin a generation, and create its staging table.

        :param name: id of the partition
        :param record: the partition as the ledger knows it
        """
        run = self._run
        reason = _EVERY_RUN
        ended = RefreshExtent.of(record.state)
        if ended is not None and is_unpublished(record.partition, ended):
            reason = (_STAGING_LOST if ended.questioned else _SNAPSHOT_ENDED).format(record.partition.generation)
            log.warning(
                "%s: %s before it was published; the refresh of %s begins anew", run.pipeline.name, reason, name
            )
        skipped_ranges = run.ledger.skipped_ranges(run.pipeline.name).get((record.partition.generation, name), ())
        skipped = ended is not None and ended.publication in skipped_ranges
        extent = self._source.begin_refresh(name).after(record.partition, ended, skipped=skipped)
        generation = run.ledger.begin_refresh(run.lease, name, extent, now=utcnow(), reason=reason)
        self._sink.prepare_staging(run.epoch, generation, extent.abandoned_from)
        self._begun.add(name)
        log.info(
            "%s: refresh of %s began in generation %d, up to position %s",
            run.pipeline.name,
            name,
            generation,
            f"{extent.rows_end:,}",
        )

    def _hold(self, batch: Batch, refusal_reason: str) -> None:
        run = self._run
        log.warning(
            "%s: %s is held and not published: %s. Release it to publish it after all, or skip it (`airflow ckpt "
            "release`, `airflow ckpt skip`); until then no other refresh begins",
            run.pipeline.name,
            batch.key,
            refusal_reason,
        )
        run.ledger.hold_publication(run.lease, batch.key, now=utcnow(), reason=refusal_reason)

    def _records(self) -> Mapping[str, PartitionRecord]:
        return self._run.ledger.partitions(self._run.pipeline.name)


def _may_refresh(record: PartitionRecord) -> bool:
    """Return whether a refresh of a partition may begin: it is a source partition, and neither draining nor stopped."""
    return record.partition.limit is None and record.partition.phase.accepts_work


def refreshes_due(records: Mapping[str, PartitionRecord]) -> int:
    """Return the number of partitions whose refresh a run that starts now would begin or continue.

    :param records: the ledger's partitions
    """
    waiting = (RefreshStep.WAIT, RefreshStep.NOTHING)
    return sum(
        next_step(record.partition, RefreshExtent.of(record.state), own=False, begun=False, is_staged=lambda: True)
        not in waiting
        for record in records.values()
        if _may_refresh(record)
    )


def publication_policy(policy: DeliveryPolicy) -> DeliveryPolicy:
    """Return the delivery policy for a publishing batch, which has no records that could become dead letters.

    An error that may pass by itself is retried, and the batch is held when its attempts are used up. Any other error
    halts the run.

    :param policy: the pipeline's policy
    """
    return replace(policy, retry=replace(policy.retry, on_exhausted=OnExhausted.HOLD), dead_letters=False, overrides={})
