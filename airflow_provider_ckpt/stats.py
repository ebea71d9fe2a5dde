"""Report a run's metrics to Airflow's ``Stats``, with the prefix ``ckpt.`` and tags for pipeline and partition.

StatsD gets the tags only if ``[metrics] statsd_influxdb_enabled`` is set; Datadog and OpenTelemetry always get them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from datetime import timedelta

from airflow_provider_ckpt.replication.metric_names import Metric

PREFIX = "ckpt."

_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9_./-]")
"""Pattern of the characters that are replaced in tags, since they end a name or a line in one of the metric formats."""

_MAX_TAG_LENGTH = 100
"""Largest number of characters of a tag's value. Airflow drops a metric if its name with all tags has more than 250
characters.
"""


class StatsMeter:
    """Meter that reports a run's metrics to Airflow's ``Stats``; see :class:`~.replication.metric_names.Meter`.

    :param pipeline: name of the pipeline, with which all metrics are tagged
    :ivar totals: values of the counters so far
    """

    def __init__(self, pipeline: str) -> None:
        from airflow.providers.common.compat.sdk import Stats

        self._stats = Stats
        self._tags = {"pipeline": tag_value(pipeline)}
        self.totals: Counter[Metric] = Counter()

    def count(self, metric: Metric, by: int = 1) -> None:
        """Add a number to a counter, and report the number even if it is 0.

        A report of 0 creates the counter, so that alerts on its rate can evaluate it.

        :param metric: the counter
        :param by: number to add
        """
        self.totals[metric] += by
        self._stats.incr(PREFIX + metric, by, tags=self._tags)

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Report the current value of a gauge.

        :param metric: the gauge
        :param value: current value
        :param partition: source partition to tag the value with; None for a value of the whole pipeline
        """
        tags = self._tags if partition is None else {**self._tags, "partition": tag_value(partition)}
        self._stats.gauge(PREFIX + metric, value, tags=tags)

    def timing(self, metric: Metric, seconds: float) -> None:
        """Report a duration.

        :param metric: the timer
        :param seconds: the duration in seconds
        """
        self._stats.timing(PREFIX + metric, timedelta(seconds=seconds), tags=self._tags)


def tag_value(value: str) -> str:
    """Return a text as a tag value that every metrics backend accepts.

    Unsafe characters become ``_``. A text of more than 100 characters is shortened and ends in a hash, to stay unique.

    :param value: the text
    """
    fit = _UNSAFE_CHARACTERS.sub("_", value)
    if len(fit) <= _MAX_TAG_LENGTH:
        return fit
    return f"{fit[: _MAX_TAG_LENGTH - 9]}-{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
