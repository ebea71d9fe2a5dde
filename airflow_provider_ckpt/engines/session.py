"""Engine that runs waves on a Spark session of the caller, for notebooks, tests, and users who keep a session open."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import CkptError, EngineError, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo, WaveLostError
from airflow_provider_ckpt.spark.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PAUSE = 0.03


class SessionEngine:
    """Engine that runs waves on a given Spark session, and neither starts nor stops it.

    It implements :class:`~.engine_protocol.Engine`.

    :param spark: a classic session; its time zone must be UTC, and ANSI mode must be on
    :ivar started: whether :meth:`start` was called
    :ivar loss_blames_batch: always False: if Spark is lost, no batch counts as the cause
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._job: Job | None = None
        self.started = False
        self.loss_blames_batch = False

    def start(self, job: Job) -> None:
        """Store the description of the run, which every wave needs; the session is open already.

        :param job: description of the run
        """
        self._job = job
        self.started = True

    def ready(self, check: Check) -> EngineInfo:  # noqa: ARG002  # there is nothing to wait for
        """Check the transform, and return Spark's parallelism and the columns of the transform's result.

        :param check: not used, since there is nothing to wait for
        """
        from airflow_provider_ckpt.spark.wave import check_transform

        return EngineInfo(self._spark.sparkContext.defaultParallelism, check_transform(self._spark, self._taken))

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Run a wave on the session, and return an outcome for each of its batches.

        :param wave: the batches, by lane
        :param check: called repeatedly while Spark works; it raises an error if the run must stop
        :raises WaveLostError: if Spark reports an error for the wave as a whole, such as a worker that died
        :raises EngineError: if the session was lost
        """
        from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from airflow_provider_ckpt.spark.sql import first_line
        from airflow_provider_ckpt.spark.wave import run_wave

        check()
        with ThreadPoolExecutor(1, thread_name_prefix="ckpt-wave") as pool:
            running = pool.submit(run_wave, self._spark, self._taken, wave)
            try:
                while not wait([running], _PAUSE).done:
                    check()
            except BaseException:
                self.kill()
                raise
        try:
            return running.result()
        except CkptError:
            raise
        except (PySparkException, Py4JJavaError) as error:  # PySpark has no class for a worker that died
            raise WaveLostError(ErrorInfo(ErrorType.PROCESSING, first_line(error))) from error
        except Py4JError as error:
            raise EngineError(
                f"the Spark session was lost: {first_line(error)}",
                hint="Nothing is lost: start Spark again, then run again; the run finds out from the receipts what was "
                "delivered.",
            ) from error

    def revive(self) -> bool:
        """Return False, because the engine cannot start the session again."""
        return False

    def kill(self) -> None:
        """Cancel all running jobs of the session; the session stays open."""
        self._spark.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Do nothing: the session stays open, for its owner."""

    @property
    def _taken(self) -> Job:
        if self._job is None:
            raise EngineError("the engine was not started", hint="Call start() with the run's job before run().")
        return self._job
