"""Report the metrics of a run: counters of its events, and gauges of the pipeline's state as the ledger has it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchState
from airflow_provider_ckpt.core.failure_decisions import Decision, RetryBatch
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.replication.metric_names import Meter, Metric
from airflow_provider_ckpt.replication.setup import PipelineContext, utcnow

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import PartitionRecord

_READING_INTERVAL = 10.0
"""Seconds between two reports of the pipeline's state during a run; there is always a report at its end."""


class RunMetrics:
    """Metrics of the part of a run that one process executes; they go to the meter of the :class:`PipelineContext`.

    :param setup: the pipeline with its ledger, connections and lease owner
    :ivar expired: ranges that expired without a receipt during the run, JSON-ready
    """

    def __init__(self, setup: PipelineContext) -> None:
        self._meter: Meter = setup.meter
        self._ledger = setup.ledger
        self._pipeline = setup.pipeline.name
        self._ledger_seconds = setup.ledger.seconds
        self._newest_event = setup.ledger.newest_event(self._pipeline)
        self._next_report_at = time.monotonic() + _READING_INTERVAL
        self.expired: list[dict[str, Any]] = []

    def settled(self, receipts: Iterable[Receipt]) -> None:
        """Add settled batches and their records to the counters.

        :param receipts: receipts of the batches that were settled
        """
        found = list(receipts)
        counts = sum((receipt.counts for receipt in found), Counts())
        self._meter.count(Metric.COMMITTED, len(found))
        self._meter.count(Metric.READ, counts.read)
        self._meter.count(Metric.DELIVERED, counts.delivered)
        self._meter.count(Metric.FILTERED, counts.filtered)
        self._meter.count(Metric.DEAD_LETTERED, counts.dead_lettered)
        self._meter.count(Metric.REPLAYED, sum(r.counts.delivered for r in found if r.key.is_replay))

    def started(self, batches: int) -> None:
        """Set the gauge of batches in flight at the beginning of a wave.

        :param batches: number of batches of the wave
        """
        self._meter.gauge(Metric.IN_FLIGHT, batches)

    def ended(self, outcomes: Iterable[Outcome], decisions: Iterable[Decision]) -> None:
        """Add a wave's failed and fenced batches, and the retries that the policy decided on, to the counters.

        :param outcomes: outcomes of the wave's batches
        :param decisions: the policy's decisions about failed batches
        """
        ends = Counter(outcome.outcome for outcome in outcomes)
        self.failed(ends[AttemptOutcome.FAILED])
        self.refused(ends[AttemptOutcome.FENCED])
        self._meter.count(Metric.RETRIES, sum(isinstance(decision, RetryBatch) for decision in decisions))

    def failed(self, commits: int) -> None:
        """Add failed commits to the counter ``commits.failure``.

        A commit fails if the sink does not commit a batch, or if the ledger does not store a settlement.

        :param commits: number of failed commits
        """
        self._meter.count(Metric.COMMIT_FAILED, commits)

    def refused(self, times: int = 1) -> None:
        """Add refusals of the sink or the ledger because of a newer epoch to the counter ``fence.rejections``.

        :param times: number of refusals
        """
        self._meter.count(Metric.FENCE_REJECTIONS, times)

    @property
    def due(self) -> bool:
        """Return whether the last report of the pipeline's state is at least 10 s old, so that another is due."""
        return time.monotonic() >= self._next_report_at

    def report(self, records: Mapping[str, PartitionRecord], lag: Mapping[str, int | None]) -> None:
        """Set the gauges of the pipeline's state, and count ranges that expired.

        :param records: the pipeline's partitions, as they are stored in the ledger now
        :param lag: number of positions by which the source is ahead of each checkpoint; None, which is not reported, if
            it is not known
        """
        self._next_report_at = time.monotonic() + _READING_INTERVAL
        blocking = [batch.state for record in records.values() for batch in record.partition.blocking.values()]
        self._meter.gauge(Metric.PLANNED, blocking.count(BatchState.PLANNED))
        self._meter.gauge(Metric.IN_FLIGHT, blocking.count(BatchState.IN_FLIGHT))
        self._meter.gauge(Metric.HELD, blocking.count(BatchState.HELD))
        self._meter.gauge(Metric.PENDING_ACK, sum(len(r.partition.pending_acks) for r in records.values()))
        for name, positions in lag.items():
            if positions is not None:
                self._meter.gauge(Metric.LAG, positions, name)
        found = self._ledger.measures(self._pipeline, after=self._newest_event)
        now = utcnow()
        for metric, since in (
            (Metric.CHECKPOINT_AGE, found.stalled_since),
            (Metric.OLDEST_PARKED, found.oldest_parked),
        ):
            self._meter.gauge(metric, max(0.0, (now - since).total_seconds()) if since else 0.0)
        self._meter.gauge(Metric.PARKED, found.parked)
        self._meter.count(Metric.EXPIRED, len(found.expired))
        self._newest_event = found.newest_event
        self.expired += found.expired

    def close(self) -> None:
        """Report the time that transactions of the ledger have taken since the run began or was last reported."""
        self._meter.timing(Metric.LEDGER_SECONDS, self._ledger.seconds - self._ledger_seconds)
        self._ledger_seconds = self._ledger.seconds
