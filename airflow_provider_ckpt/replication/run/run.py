"""Carry out a run that ``acquire.py`` has started: hold the lease, plan, execute waves, settle, release the lease."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Self

from airflow_provider_ckpt.connectors.source_plan import SOURCE_END
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import (
    CkptError,
    FencedError,
    LedgerUnavailableError,
    SinkChangedError,
    StaleEpochError,
)
from airflow_provider_ckpt.core.lag import PartitionLag, lag_positions
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.replication.metric_names import Metric
from airflow_provider_ckpt.replication.run import final_check
from airflow_provider_ckpt.replication.run.known_files import KnownFiles
from airflow_provider_ckpt.replication.run.lease_renewal import LeaseRenewals
from airflow_provider_ckpt.replication.run.metrics import RunMetrics
from airflow_provider_ckpt.replication.run.reconcile import reconcile
from airflow_provider_ckpt.replication.run.refresh import refreshes_due
from airflow_provider_ckpt.replication.run.run_planning import RunPlanning
from airflow_provider_ckpt.replication.run.summary import RunSummary
from airflow_provider_ckpt.replication.run.wave_loop import WaveLoop
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext, utcnow

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import Lease, PartitionRecord
    from airflow_provider_ckpt.replication.run.engine_protocol import Engine

log = logging.getLogger(__name__)

_SPARK_STEPS = frozenset({"spark_start", "spark"})
"""Steps of the run's summary in which the run waits for Spark."""
_SINK_ERRORS = (StaleEpochError, FencedError, SinkChangedError)
"""Errors after which a check of the sink is useless: the sink caused the error, or belongs to another run now."""


class Run:
    """Run of a pipeline, which holds the lease and has source and sink open.

    As a context manager, the run closes source and sink at the end. After an error it also checks the sink if it may
    have received records, adds the pipeline's name to the error, and releases the lease. An exception that ends the
    process, such as ``SystemExit``, leaves no time for the check.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param lease: the lease
    :param opened: the pipeline's source and sink, open
    :ivar summary: summary of this process's part in the run
    :ivar metrics: metrics of this process's part, which go to the setup's meter
    :ivar source_verified: whether the source was compared with the one that the ledger knows
    :ivar planning: planning of the run's batches
    :ivar unconfirmed: number of batches that were sent with delivery at_most_once and have no receipt
    :ivar known_files: the source files that the ledger knows
    :ivar bounds: newest closed bound of each source partition that has one: the position below which no record can
        appear any more
    """

    def __init__(self, setup: PipelineContext, lease: Lease, opened: OpenConnectors) -> None:
        self.setup = setup
        self.pipeline = setup.pipeline
        self.ledger = setup.ledger
        self.lease = lease
        self.source = opened.source
        self.sink = opened.sink
        self.id = uuid.uuid4().hex[:12]
        self.known_files = KnownFiles(setup.ledger, self.pipeline)
        self.summary = RunSummary(self.pipeline.name, lease.epoch, run=self.id)
        self._started = time.monotonic()
        self.bounds: dict[str, int] = {}
        self.unconfirmed = 0
        self.planning = RunPlanning(self)
        self.source_verified = False
        self._closed = False
        setup.on_lease(lease)
        self.metrics = RunMetrics(setup)
        setup.meter.count(Metric.TAKEOVERS, int(lease.taken_over))
        self._renewal = (setup.renewals or LeaseRenewals(setup.ledger)).add(lease)

    @property
    def epoch(self) -> int:
        """Epoch of the lease."""
        return self.lease.epoch

    @cached_property
    def window(self) -> timedelta | None:
        """Time by which the low watermark follows the checkpoint; None for a source in which no records appear late."""
        return self.pipeline.recovery.window if self.source.may_have_late_records() else None

    def check(self) -> None:
        """Raise an error if the run must stop, or if the background renewal has found that the lease was lost.

        The function :attr:`.PipelineContext.check` raises its own error if the run must stop.

        :raises StaleEpochError: if another run has taken the lease; the error names both epochs
        """
        self.setup.check()
        self._renewal.check()

    def confirm_lease(self) -> None:
        """Renew the lease in the ledger at once, to find out whether the run still holds it.

        :raises StaleEpochError: if the lease is lost, as after a force stop; names both epochs
        """
        self.ledger.renew(self.lease)

    def verify_source(self) -> None:
        """Refuse a source that was replaced since the ledger stored the identities of its partitions.

        The tasks of a task group execute one run in several processes, and the source may be replaced in between. So
        the first call in each process checks the source; later calls do nothing.

        :raises SourceError: if a partition's identity differs from the stored one
        """
        if self.source_verified:
            return
        known = self.ledger.partitions(self.pipeline.name)
        found = [partition for partition in self.source.partitions() if partition.id in known]
        self.ledger.start_partitions(self.lease, {partition: known[partition.id].partition.base for partition in found})
        self.source_verified = True

    def apply_stored_actions(self, *, behind_fence: bool = False) -> bool:
        """Apply the actions that were stored while a run held the lease.

        :param behind_fence: whether this run has fenced the sink and reconciled, and has not begun any attempt since;
            if not, actions that need this, such as a rewind, stay stored
        :returns: whether there were stored actions
        """
        if not self.ledger.stored_actions(self.pipeline.name):
            return False
        return self.apply_actions_found(behind_fence=behind_fence)

    def apply_actions_found(self, *, behind_fence: bool = False) -> bool:
        """Apply the actions that were stored while a run held the lease, after they were found in the ledger.

        :param behind_fence: see :meth:`apply_stored_actions`
        :returns: whether an action was applied or refused
        """
        results = self.ledger.apply_stored_actions(
            self.lease, now=utcnow(), behind_fence=behind_fence, compares_columns=self.pipeline.schema_ is not None
        )
        for result in results:
            if result.applied:
                log.info("%s: the requested %s was applied", self.pipeline.name, result.action.kind.value)
                self.planning.more = True
            else:
                log.warning(
                    "%s: the requested %s was refused: %s", self.pipeline.name, result.action.kind.value, result.refusal
                )
        return bool(results)

    def receipts(self, records: Mapping[str, PartitionRecord] | None = None) -> Iterator[Receipt]:
        """Read from the sink the receipts that the ledger may not know.

        :param records: the ledger's partitions by id; None to read them from the ledger
        """
        collected = self.ledger.collected_ends(self.pipeline.name)
        current = self.ledger.partitions(self.pipeline.name) if records is None else records
        return self.sink.receipts(collected | {name: record.known for name, record in current.items()})

    def prepare(self) -> int:
        """Plan batches before Spark is started, unless the process that executes the waves has to plan them.

        A refresh begins in that process, because it holds the snapshot that all batches read.

        :returns: number of batches that may begin; a refresh that is due counts as one
        """
        if not self.pipeline.refreshes:
            return self.plan()
        self.verify_source()
        return len(self.planned()) + refreshes_due(self.ledger.partitions(self.pipeline.name))

    def plan(self, skipped: Collection[BatchKey] = ()) -> int:
        """Plan batches for new records of the source, and store them; see :meth:`.RunPlanning.plan`.

        :param skipped: batches that this run no longer begins
        :returns: number of batches that are planned and may begin now or later
        """
        return self.planning.plan(skipped)

    def execute(self, engine: Engine, *, rounds: bool, plan_on: bool = True) -> None:
        """Have Spark execute waves of planned batches until none are due or the time budget is over.

        See ``wave_loop.py``.

        :param engine: interface to Spark, which executes the waves
        :param rounds: whether to execute later rounds too, and wait for them; otherwise they are left to a retry task
        :param plan_on: whether to plan more records of the source while batches get their verdict
        :raises CkptError: when the run halts or the sink as a whole fails; what was delivered is settled
        """
        self.verify_source()
        WaveLoop(self, engine, rounds=rounds, plan_on=plan_on).run()

    def settle(self) -> None:
        """Settle batches that have a receipt in the sink although no wave has reported their outcome."""
        reconcile(self)

    def planned(self) -> list[Batch]:
        """Return all batches in state ``planned``, in the order of their keys."""
        return self._in_state(BatchState.PLANNED)

    def next_due(self) -> datetime | None:
        """Return the earliest time at which a batch that waits for another round may start; None if no batch waits."""
        waiting = [batch.not_before or utcnow() for batch in self.planned() if batch.round > 1]
        return min(waiting, default=None)

    def finish(self, *, release: bool = True) -> RunSummary:
        """Check the sink if it may have received records, complete and return the summary, and release the lease.

        A run that pauses has not succeeded yet, so the error of the run before remains.

        :param release: whether to release the lease; False if a later task continues with it
        :raises SinkChangedError: if the sink has lost records that this run delivered
        """
        if self._may_have_sent:
            with self.step("confirm"):
                final_check.confirm(self.setup, self.lease, self.sink)
        records = self.ledger.partitions(self.pipeline.name)
        self.summary.set_end_state(records, unconfirmed=self.unconfirmed)
        self.summary.lag = self._lag(records)
        self.metrics.report(records, self.summary.lag)
        self.summary.expired = self.metrics.expired
        self.summary.target_rows = self.sink.target_rows()
        self.summary.seconds = time.monotonic() - self._started
        if release:
            self.ledger.release(self.lease, succeeded=not self.setup.turn.is_paused)
        log.info("%s", self.summary.line())
        return self.summary

    def settled(self, receipts: Sequence[Receipt]) -> None:
        """Add settled batches and their records to summary and metrics.

        :param receipts: receipts of the batches that were settled
        """
        self.summary.settled(receipts)
        self.metrics.settled(receipts)

    def measure(self) -> None:
        """Report the gauges of the pipeline's state if the last report is at least 10 s old."""
        if self.metrics.due:
            self._report_metrics()

    def record_checkpoints(self, records: Mapping[str, PartitionRecord]) -> Mapping[str, PartitionRecord]:
        """Record the present checkpoints in the summary as those before the run, and load the stored bounds.

        :param records: the ledger's partitions
        :return: the same
        """
        for name, record in records.items():
            at = record.partition.committed
            self.summary.checkpoint.setdefault(name, {"before": at, "after": at})
            if record.bound is not None:
                self.bounds.setdefault(name, record.bound)
        return records

    def close(self) -> None:
        """Stop renewing the lease and close source and sink; the lease is not released."""
        if self._closed:
            return
        self._closed = True
        self._renewal.stop()
        self.metrics.close()
        self.source.close()
        self.sink.close()

    def release_after_error(self, error: BaseException) -> None:
        """Release the lease after an error, and have the ledger record the error.

        If that fails, it is only logged, as the lease also expires by itself.

        :param error: the error. If its class is not one of this package, only its type is recorded, since its text may
            contain a value or a secret
        """
        text = str(error) if isinstance(error, CkptError) else f"{type(error).__name__}; the log of the run has more"
        try:
            self.ledger.release(self.lease, error=text)
        except LedgerUnavailableError as error:
            log.warning("The lease of %s could not be released and has to expire: %s", self.pipeline.name, error)
            return
        with suppress(CkptError):
            self._report_metrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        failed = kind is not None and issubclass(kind, Exception) and not issubclass(kind, _SINK_ERRORS)
        if failed and self._may_have_sent:
            final_check.confirm_after_failure(self.setup, self.lease)
        self.close()
        if error is not None:
            if isinstance(error, CkptError):
                error.pipeline = error.pipeline or self.pipeline.name
            if isinstance(error, StaleEpochError | FencedError):
                self.metrics.refused()
            self.release_after_error(error)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the wall time of the ``with`` block to a step of the summary.

        :param name: name of the step, such as ``plan``
        """
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.summary.add_seconds(name, seconds)
            if name in _SPARK_STEPS:
                self.setup.meter.timing(Metric.SPARK_SECONDS, seconds)

    @property
    def _may_have_sent(self) -> bool:
        """Return whether the sink may have records of this run, or of an earlier run that this run settled."""
        return self.summary.spark_started or self.summary.batches > 0

    def _report_metrics(self) -> None:
        """Read the partitions from the ledger, and set the gauges of the pipeline's state."""
        records = self.ledger.partitions(self.pipeline.name)
        self.metrics.report(records, self._lag(records))

    def _lag(self, records: Mapping[str, PartitionRecord]) -> dict[str, int | None]:
        """Return, by partition, how many positions the source is ahead of the checkpoint; None if that is unknown.

        Positions that are not readable yet count as well.

        :param records: the ledger's partitions
        """
        ends = {
            name: max(self.bounds.get(name, record.partition.planned_end), record.state.get(SOURCE_END, 0))
            for name, record in records.items()
        }
        return lag_positions(
            {name: PartitionLag(record.partition.committed, ends[name]) for name, record in records.items()}
        )

    def _in_state(self, state: BatchState) -> list[Batch]:
        """Return all batches in a state, in the order of their keys."""
        records = self.ledger.partitions(self.pipeline.name)
        found = [b for r in records.values() for b in r.partition.batches.values() if b.state is state]
        return sorted(found, key=lambda batch: batch.key)
