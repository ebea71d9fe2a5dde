"""Report a run's metrics to Airflow's ``Stats``, with the prefix ``ckpt.`` and tags for pipeline and partition.

StatsD gets the tags only if ``[metrics] statsd_influxdb_enabled`` is set; Datadog and OpenTelemetry always get them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from datetime import timedelta

from airflow_provider_ckpt.replication.metrics import Metric

PREFIX = "ckpt."

_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9_./-]")
"""Characters that are replaced in tags, since in some metric format they would end the name or the line."""

_MAX_TAG_LENGTH = 100
"""Largest number of characters of a tag's value: Airflow drops a metric whose name with all tags is longer than 250."""


class StatsMeter:
    """:class:`~airflow_provider_ckpt.replication.metrics.Meter` that reports to Airflow's ``Stats``.

    :param pipeline: name of the pipeline
    :ivar totals: values of the counters so far
    """

    def __init__(self, pipeline: str) -> None:
        from airflow.sdk.observability import stats

        self._stats = stats
        self._tags = {"pipeline": tag_value(pipeline)}
        self.totals: Counter[Metric] = Counter()

    def count(self, metric: Metric, by: int = 1) -> None:
        """Add a number to a counter, and report it even if it is 0.

        After a report of 0 the counter exists, so that alerts on its rate can evaluate it.
        """
        self.totals[metric] += by
        self._stats.incr(PREFIX + metric, by, tags=self._tags)

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Set a gauge.

        :param metric: the metric
        :param value: its new value
        :param partition: source partition to tag it with, None for the whole pipeline
        """
        tags = self._tags if partition is None else {**self._tags, "partition": tag_value(partition)}
        self._stats.gauge(PREFIX + metric, value, tags=tags)

    def timing(self, metric: Metric, seconds: float) -> None:
        """Report a duration in seconds."""
        self._stats.timing(PREFIX + metric, timedelta(seconds=seconds), tags=self._tags)


def tag_value(value: str) -> str:
    """Return a value that every metrics backend accepts as a tag; a shortened value ends in a hash to stay unique."""
    fit = _UNSAFE_CHARACTERS.sub("_", value)
    if len(fit) <= _MAX_TAG_LENGTH:
        return fit
    return f"{fit[: _MAX_TAG_LENGTH - 9]}-{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def initialize() -> None:
    """Set up Airflow's ``Stats`` in a process that is no Airflow task; in a task, Airflow has done so."""
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    stats.initialize(
        factory=stats_utils.get_stats_factory(), export_legacy_names=False
    )  # the provider's metrics have none
