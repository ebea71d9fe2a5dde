"""Query plans that Spark has analysed, optimized and compiled once, kept for later waves and runs of a pipeline.

A plan depends on the declaration, the source's columns and the number of lanes; that of the fast path depends on the
number of lanes only. The run, the batches and the passwords differ from wave to wave and are not part of a plan: the
driver writes them to a file of the run directory, whose path Spark passes to each lane's task. On a cluster, where
lanes cannot read that file, each wave has a plan of its own.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.spark import wave as waves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
    from airflow_provider_ckpt.spark.job import Job

_PROPERTY = "ckpt.wave"
"""Local property of a Spark job: path of the pickle file with the result of :func:`.wave.lane_arguments`."""

_MAX_PLANS = 16
"""Largest number of plans that a session keeps; beyond it, the oldest one is dropped."""


class PreparedWaves:
    """Spark session with the query plans that it has prepared. It serves one run at a time.

    All runs of one session have the same declaration, except those that pass records unchanged
    (:func:`.wave.passes_unchanged`).

    :param spark: a classic session (no Spark Connect)
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._local = str(spark.sparkContext.master).startswith("local")
        self._columns: list[tuple[str, str]] | None = None
        self._frames: dict[tuple[int, bool, str], DataFrame] = {}

    def check_transform(self, job: Job) -> list[tuple[str, str]]:
        """Check the transform of a run, and return the name and the Spark SQL type of each column that it outputs.

        The first call also checks the SQL part and stores the columns; later calls check only that the Python function
        can be imported. Records that pass unchanged need no check.

        :param job: description of the run
        :raises ConfigError: if the transform cannot be used
        """
        if waves.passes_unchanged(job):
            return list(job.shape.columns)
        if self._columns is None:
            self._columns = waves.check_transform(self.spark, job)
        else:
            job.transform_function()
        return self._columns

    def run_wave(self, job: Job, wave: Wave, directory: Path) -> list[Outcome]:
        """Run a wave, with a prepared plan where possible, and return an outcome for each of its batches.

        :param job: description of the run
        :param wave: the batches to run, by lane
        :param directory: the run directory, where the file with job and wave is written while the wave runs
        """

        def collect(spark: SparkSession, job: Job, wave: Wave, fast_path: bool) -> Sequence[Row]:
            if not self._local or job.pipeline.source.read_by_spark:
                return waves.collect(spark, job, wave, fast_path)
            return self._collect(job, wave, directory, fast_path=fast_path)

        return waves.run_wave(self.spark, job, wave, collect)

    def _collect(self, job: Job, wave: Wave, directory: Path, *, fast_path: bool) -> Sequence[Row]:
        """Execute a wave with a prepared plan, whose lanes read job and wave from a file; return the result rows.

        :param job: description of the run
        :param wave: the batches to run, by lane
        :param directory: the run directory, where the file is written and deleted afterwards
        :param fast_path: whether lanes read and deliver without Spark SQL (see ``lane/fast_path.py``)
        """
        given = "" if fast_path else json.dumps([job.document, job.shape.columns, job.shape.refused])
        plan = (len(wave.lanes), fast_path, given)
        if plan not in self._frames:
            self._frames[plan] = waves.wave_frame(self.spark, job, len(wave.lanes), _work_of_task, fast_path=fast_path)
        if len(self._frames) > _MAX_PLANS:
            self._frames.pop(next(iter(self._frames)))
        frame = self._frames[plan]
        arguments = waves.lane_arguments(self.spark, job, wave, fast_path=fast_path)
        path = directory / f"wave-{wave.number}.pickle"
        with private_files.create(path) as file:
            pickle.dump(arguments, file)
        context = self.spark.sparkContext
        context.setLocalProperty(_PROPERTY, str(path))
        try:
            return frame.collect()
        finally:
            context.setLocalProperty(_PROPERTY, "")
            path.unlink(missing_ok=True)


def _work_of_task() -> tuple[Any, ...]:
    """Return the lane's arguments in the current Spark task, from the file that a local property of the task names."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    path = context.getLocalProperty(_PROPERTY)
    assert path is not None
    found: tuple[Any, ...] = pickle.loads(Path(path).read_bytes())  # noqa: S301  # written by this run's own driver
    return found
