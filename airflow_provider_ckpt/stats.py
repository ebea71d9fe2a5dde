"""Where a run's numbers go in Airflow: its ``Stats``, under ``ckpt.``, tagged with the pipeline and the partition.

Tags reach StatsD where ``[metrics] statsd_influxdb_enabled`` is set, Datadog and OpenTelemetry always.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from datetime import timedelta

from airflow_provider_ckpt.replication.metrics import Metric

PREFIX = "ckpt."

_UNFIT = re.compile(r"[^A-Za-z0-9_./-]")
"""What no tag may hold: it would end the name, or the line, in one of the formats."""

_LONGEST = 100
"""Airflow drops a metric whose name with all tags is longer than 250."""


class StatsMeter:
    """See :class:`~airflow_provider_ckpt.replication.metrics.Meter`.

    :param pipeline: its name
    :ivar totals: what was counted so far
    """

    def __init__(self, pipeline: str) -> None:
        from airflow.sdk.observability import stats

        self._stats = stats
        self._tags = {"pipeline": tag(pipeline)}
        self.totals: Counter[Metric] = Counter()

    def count(self, metric: Metric, by: int = 1) -> None:
        """Add to a counter; by nothing too, so that an alert on its rate has something to begin with."""
        self.totals[metric] += by
        self._stats.incr(PREFIX + metric, by, tags=self._tags)

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Set a gauge."""
        tags = self._tags if partition is None else {**self._tags, "partition": tag(partition)}
        self._stats.gauge(PREFIX + metric, value, tags=tags)

    def timing(self, metric: Metric, seconds: float) -> None:
        """Note how long something took."""
        self._stats.timing(PREFIX + metric, timedelta(seconds=seconds), tags=self._tags)


def tag(value: str) -> str:
    """A value that every backend takes as a tag; two values stay two."""
    fit = _UNFIT.sub("_", value)
    if len(fit) <= _LONGEST:
        return fit
    return f"{fit[: _LONGEST - 9]}-{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def initialize() -> None:
    """Set Airflow's ``Stats`` up in a process of our own; in a task Airflow has done so."""
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)  # ours have none
