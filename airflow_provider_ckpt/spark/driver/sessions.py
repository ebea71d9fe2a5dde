"""Spark sessions of a standing driver, kept after a run for the next run of the same pipeline declaration."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.spark.driver.session_conf import session_part
from airflow_provider_ckpt.spark.prepared_plans import PreparedWaves
from airflow_provider_ckpt.spark.sql import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.spark.job import Job

_MAX_KEPT = 64
"""Largest number of idle sessions in the pool; beyond it, the session that has been idle longest is dropped."""


class Sessions:
    """Pool of the Spark sessions of a standing driver. A session serves one run at a time.

    :param first: the session that Spark started with, from which the others are created
    """

    def __init__(self, first: SparkSession) -> None:
        self._first = first
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, PreparedWaves] = OrderedDict()

    @property
    def count(self) -> int:
        """Number of sessions that are kept and serve no run now."""
        return len(self._kept)

    def take(self, job: Job) -> PreparedWaves:
        """Return a Spark session for a run: one of an earlier run of the same declaration, or a new one.

        :param job: description of the run
        :raises ConfigError: if a property of ``run.conf`` cannot be set in a new session
        """
        with self._lock:
            found = self._kept.pop(_key(job), None)
        if found is None:
            session = self._first.newSession()
            _configure(session, job)
            found = PreparedWaves(session)
        session = found.spark
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]  # for this thread
        return found

    def give_back(self, job: Job, session: PreparedWaves) -> None:
        """Keep the session of a run that has ended, for the next run of the same declaration.

        :param job: description of the run
        :param session: the session that :meth:`take` returned for the run
        """
        with self._lock:
            self._kept[_key(job)] = session
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)


def _key(job: Job) -> str:
    """Return a digest of a run's pipeline declaration and source columns.

    Runs with equal digests can share a session.

    :param job: description of the run
    """
    shape = job.shape
    parts = json.dumps([job.document, shape.raw, list(shape.columns), dict(shape.refused)], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def _configure(session: SparkSession, job: Job) -> None:
    """Set the declaration's session properties (``run.conf``) in a new session.

    :param session: the session
    :param job: description of the run, with the declaration
    :raises ConfigError: if a property cannot be set
    """
    from pyspark.errors import PySparkException

    pipeline = job.pipeline
    for name, value in session_part(pipeline.spark_properties).items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            raise ConfigError(
                f"run.conf: {name} cannot be set: {first_line(error)}",
                pipeline=pipeline.name,
                hint="Correct the value.",
            ) from error
