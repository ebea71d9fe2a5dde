"""Spark sessions of a standing driver, kept after a run for the next run that can use the same session.

A run that passes records unchanged uses no Spark SQL of its own, so such runs of all pipelines share sessions, and with
them the plans that Spark has analysed and compiled. Any other run shares a session with runs of its declaration only.
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.spark.driver.session_conf import session_part
from airflow_provider_ckpt.spark.prepared_plans import PreparedWaves
from airflow_provider_ckpt.spark.sql import first_line
from airflow_provider_ckpt.spark.wave import passes_unchanged

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
        self._kept: list[tuple[str, PreparedWaves]] = []  # the session that has been idle longest comes first

    @property
    def count(self) -> int:
        """Number of sessions that are kept and serve no run now."""
        return len(self._kept)

    def take(self, job: Job) -> PreparedWaves:
        """Return a Spark session for a run: one that served an earlier run with the same key, or a new one.

        :param job: description of the run
        :raises ConfigError: if a property of ``run.conf`` cannot be set in a new session
        """
        key = _key(job)
        with self._lock:
            kept = next((item for item in reversed(self._kept) if item[0] == key), None)
            if kept is not None:
                self._kept.remove(kept)
        if kept is None:
            session = self._first.newSession()
            _configure(session, job)
            found = PreparedWaves(session)
        else:
            found = kept[1]
        session = found.spark
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]  # for this thread
        return found

    def give_back(self, job: Job, session: PreparedWaves) -> None:
        """Keep the session of a run that has ended, for the next run with the same key.

        :param job: description of the run
        :param session: the session that :meth:`take` returned for the run
        """
        with self._lock:
            self._kept.append((_key(job), session))
            del self._kept[:-_MAX_KEPT]


def _key(job: Job) -> str:
    """Return a digest of that on which a run's session depends; runs with equal digests can share a session.

    It is of the session properties only if records pass unchanged, else of the declaration and the source's columns.

    :param job: description of the run
    """
    shape = job.shape
    parts = (
        [session_part(job.pipeline.spark_properties)]
        if passes_unchanged(job)
        else [job.document, shape.raw, list(shape.columns), dict(shape.refused)]
    )
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


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
