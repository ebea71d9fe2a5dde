"""Waves of a pipeline whose plans Spark has analysed, optimized and compiled in an earlier wave or run.

A plan depends on the declaration, the source's columns and the number of lanes. What differs from wave to wave, run,
batches and passwords, is not part of it: each lane reads that from a file of the run directory, whose path Spark passes
to the lane's task. On a cluster, where lanes do not see that file, each wave has a plan of its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.spark import wave as waves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_provider_ckpt.core.wave import Outcome, Wave
    from airflow_provider_ckpt.spark.job import Job

_PROPERTY = "ckpt.wave"
"""Local property of Spark jobs: path of the file with run and wave."""


class PreparedWaves:
    """A session that serves one declaration, one run at a time.

    :param spark: classic session
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._local = str(spark.sparkContext.master).startswith("local")
        self._columns: list[tuple[str, str]] | None = None
        self._frames: dict[tuple[int, bool], DataFrame] = {}

    def check_transform(self, job: Job) -> list[tuple[str, str]]:
        """Check the transform as :func:`~.wave.check_transform` does, its Python function each time."""
        if self._columns is None:
            self._columns = waves.check_transform(self.spark, job)
        else:
            job.transform_function()
        return self._columns

    def run_wave(self, job: Job, wave: Wave, directory: Path) -> list[Outcome]:
        """Run a wave as :func:`~.wave.run_wave` does.

        :param job: the run
        :param wave: the batches to run, by lane
        :param directory: the run directory
        """

        def collect(spark: SparkSession, job: Job, wave: Wave, fast_path: bool) -> Sequence[Row]:
            if not self._local or job.pipeline.source.read_by_spark:
                return waves.collect(spark, job, wave, fast_path)
            return self._collect(job, wave, directory, fast_path=fast_path)

        return waves.run_wave(self.spark, job, wave, collect)

    def _collect(self, job: Job, wave: Wave, directory: Path, *, fast_path: bool) -> Sequence[Row]:
        shape = (len(wave.lanes), fast_path)
        if shape not in self._frames:
            self._frames[shape] = waves.wave_frame(self.spark, job, len(wave.lanes), _work_of_task, fast_path=fast_path)
        path = directory / f"wave-{wave.number}.pickle"
        with private_files.create(path) as file:
            pickle.dump((job, wave), file)
        context = self.spark.sparkContext
        context.setLocalProperty(_PROPERTY, str(path))
        try:
            return self._frames[shape].collect()
        finally:
            context.setLocalProperty(_PROPERTY, "")
            path.unlink(missing_ok=True)


def _work_of_task() -> tuple[Job, Wave]:
    """Return run and wave of the Spark task that calls this."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    path = context.getLocalProperty(_PROPERTY)
    assert path is not None
    found: tuple[Job, Wave] = pickle.loads(Path(path).read_bytes())  # noqa: S301  # written by this run's own driver
    return found
