"""What a run measures, by the names that people see on their dashboards (semantics, section 9).

Whoever starts the run says where the numbers go: in Airflow, ``stats.py``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Metric(StrEnum):
    """Every metric by its name, without the prefix."""

    READ = "records.read"
    DELIVERED = "records.delivered"
    FILTERED = "records.filtered"
    DEAD_LETTERED = "records.dead_lettered"
    COMMITTED = "commits.success"
    COMMIT_FAILED = "commits.failure"
    RETRIES = "retries"
    PLANNED = "batches.planned"
    IN_FLIGHT = "batches.in_flight"
    HELD = "batches.held"
    PENDING_ACK = "batches.pending_ack"
    LAG = "consumer_lag"
    CHECKPOINT_AGE = "checkpoint.age_seconds"
    PARKED = "dlq.parked"
    OLDEST_PARKED = "dlq.oldest_seconds"
    REPLAYED = "dlq.replayed"
    TAKEOVERS = "lease.takeovers"
    FENCE_REJECTIONS = "fence.rejections"
    EXPIRED = "expired_unreceipted"
    SPARK_SECONDS = "spark.seconds"
    LEDGER_SECONDS = "ledger.seconds"


COUNTERS = frozenset(
    {
        Metric.READ,
        Metric.DELIVERED,
        Metric.FILTERED,
        Metric.DEAD_LETTERED,
        Metric.COMMITTED,
        Metric.COMMIT_FAILED,
        Metric.RETRIES,
        Metric.REPLAYED,
        Metric.TAKEOVERS,
        Metric.FENCE_REJECTIONS,
        Metric.EXPIRED,
    }
)
TIMERS = frozenset({Metric.SPARK_SECONDS, Metric.LEDGER_SECONDS})
GAUGES = frozenset(Metric) - COUNTERS - TIMERS


class Meter(Protocol):
    """Where the numbers of one pipeline go. Nothing that it does may stop a run."""

    def count(self, metric: Metric, by: int = 1) -> None:
        """Add to a counter."""

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Set a gauge, of the pipeline or of one partition."""

    def timing(self, metric: Metric, seconds: float) -> None:
        """Note how long something took."""


class NoMeter:
    """For a run whose numbers nobody collects."""

    def count(self, metric: Metric, by: int = 1) -> None:
        """Nothing."""

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Nothing."""

    def timing(self, metric: Metric, seconds: float) -> None:
        """Nothing."""


NO_METER = NoMeter()
