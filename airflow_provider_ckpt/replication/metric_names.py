"""Define the names of a run's metrics, and the interface to which a run reports their values.

The caller of a run implements the interface; in Airflow, ``stats.py`` passes the values to Airflow's metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Metric(StrEnum):
    """Names of all metrics, to which the caller of a run adds a prefix."""

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
    """Interface that receives the metrics of one pipeline; its methods must not raise an error."""

    def count(self, metric: Metric, by: int = 1) -> None:
        """Increase a counter.

        :param metric: the counter
        :param by: number to add
        """

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Set a gauge of the pipeline, or of one partition.

        :param metric: the gauge
        :param value: its new value
        :param partition: id of the partition; None for the pipeline
        """

    def timing(self, metric: Metric, seconds: float) -> None:
        """Record a duration as a value of a timer.

        :param metric: the timer
        :param seconds: the duration
        """


class NoMeter:
    """Meter that discards all values."""

    def count(self, metric: Metric, by: int = 1) -> None:
        """Discard the value."""

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Discard the value.

        :param metric: ignored
        :param value: ignored
        :param partition: ignored
        """

    def timing(self, metric: Metric, seconds: float) -> None:
        """Discard the value."""


NO_METER = NoMeter()
