"""Plans that Spark has analysed, optimized and compiled once, kept for the next waves and runs of a pipeline.

A plan depends on the declaration, the source's columns and the number of lanes. The run, the batches and the passwords
differ from wave to wave and are not part of a plan: each lane reads them from a file of the run directory, whose path
Spark passes to the lane's task. On a cluster, where lanes do not see that file, each wave has a plan of its own.
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
"""Local property of Spark jobs: path of the pickle file with the run's :class:`Job` and the wave."""


class PreparedWaves:
    """Spark session with the plans that it has prepared for one declaration; it serves one run at a time.

    :param spark: classic session
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._local = str(spark.sparkContext.master).startswith("local")
        self._columns: list[tuple[str, str]] | None = None
        self._frames: dict[tuple[int, bool], DataFrame] = {}

    def check_transform(self, job: Job) -> list[tuple[str, str]]:
        """Check the transform, and return name and Spark SQL type of each output column.

        The SQL part is checked at the first call only, the Python function at each call.

        :raises ConfigError: if the transform cannot be used
        """
        if self._columns is None:
            self._columns = waves.check_transform(self.spark, job)
        else:
            job.transform_function()
        return self._columns

    def run_wave(self, job: Job, wave: Wave, directory: Path) -> list[Outcome]:
        """Run a wave by a prepared plan where possible, and return an outcome for each of its batches.

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
        """Execute a wave's lanes by a prepared plan, which get the wave from a file; return one row for each batch."""
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
    """Return run and wave of the Spark task that calls this function, from the file that the task's property names."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    path = context.getLocalProperty(_PROPERTY)
    assert path is not None
    found: tuple[Job, Wave] = pickle.loads(Path(path).read_bytes())  # noqa: S301  # written by this run's own driver
    return found
