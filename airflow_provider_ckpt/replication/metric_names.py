"""Metrics of a run, by the names that dashboards show (semantics, section 9).

The caller of a run decides where the values go; in Airflow, ``stats.py`` passes them to Airflow's metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Metric(StrEnum):
    """Names of all metrics, without the prefix that the caller of a run puts before them."""

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
    """Destination of one pipeline's metrics; its methods must not raise."""

    def count(self, metric: Metric, by: int = 1) -> None:
        """Increase a counter by a number."""

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Set a gauge of the pipeline, or of one partition.

        :param metric: the gauge
        :param value: its new value
        :param partition: id of the partition; None for the pipeline
        """

    def timing(self, metric: Metric, seconds: float) -> None:
        """Record a duration in seconds as a value of a timer."""


class NoMeter:
    """Meter that discards all values."""

    def count(self, metric: Metric, by: int = 1) -> None:
        """Ignore the value."""

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Ignore the value.

        :param metric: ignored
        :param value: ignored
        :param partition: ignored
        """

    def timing(self, metric: Metric, seconds: float) -> None:
        """Ignore the value."""


NO_METER = NoMeter()
