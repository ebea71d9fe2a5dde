"""``connect`` engine: run waves on an existing Spark Connect server, so that a run starts no Spark.

This process takes the part of the driver: it sends each wave to the server as one operation, tagged with the run's
epoch, and commits the batches that lanes staged for a two-phase sink. A run that is killed cancels its operations. If
it ends before that, the next run, which uses the same session on the server, cancels them.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

from airflow_provider_ckpt.core.errors import ConfigError, EngineError, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.connect_server import is_lost
from airflow_provider_ckpt.engines.connect_session import open_session, without_ids
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo, WaveLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as AnySession
    from pyspark.sql.connect.session import SparkSession

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.spark.job import Job

log = logging.getLogger(__name__)

_PAUSE = 0.03
_KILL_SECONDS = 2.0
_NOTHING_LOST = "Nothing is lost: the next run finds out from the receipts what was delivered."
_PYTHON_MISMATCH = re.compile(r"PYTHON_VERSION_MISMATCH|ModuleNotFoundError|ImportError")
_RANGE_END = 1 << 40

T = TypeVar("T")


class ConnectEngine:
    """Engine (:class:`~.engine_protocol.Engine`) that runs waves on a Spark Connect server.

    :param pipeline: the pipeline's declaration; its ``run`` part names the Airflow connection of type ``spark_connect``
    :ivar started: whether :meth:`start` was called
    :ivar loss_blames_batch: always True: if Spark is lost during a wave of one batch, that batch counts as the cause
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._killed = threading.Event()
        self._job: Job | None = None
        self._session: SparkSession | None = None
        self._session_future: Future[EngineInfo] | None = None
        self._wave_future: Future[Sequence[Outcome]] | None = None
        self.started = False
        self.loss_blames_batch = True

    def start(self, job: Job) -> None:
        """Begin to open the session on the server in a thread, and return at once.

        :param job: description of the run
        """
        import pyspark.sql.connect.session  # noqa: F401  # imported now, since two threads must not import it at once

        self._check_not_killed()
        self._job = job
        self._session_future = _in_thread(self._open, job)
        self.started = True

    def ready(self, check: Check) -> EngineInfo:
        """Wait until the session is open and the transform is checked; see :meth:`Engine.ready`.

        :param check: called repeatedly while waiting; it raises an error if the run must stop
        :return: the server's parallelism and the columns of the transform's result
        """
        from pyspark.errors import PySparkException

        assert self._session_future is not None
        try:
            return self._wait(self._session_future, check)
        except PySparkException as error:
            self._check_not_killed()
            raise self._to_engine_error(error) from error

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Run a wave on the server, and return an outcome for each of its batches; see :meth:`Engine.run`.

        :param wave: the batches, by lane
        :param check: called repeatedly while the server works; it raises an error if the run must stop
        :raises ConfigError: if the Python of the server's executors has another version, or lacks a module
        """
        from pyspark.errors import PySparkException

        from airflow_provider_ckpt.spark.sql import first_line

        self._check_not_killed()
        self._wave_future = _in_thread(self._work, wave)
        try:
            return self._wait(self._wave_future, check)
        except PySparkException as error:
            self._check_not_killed()
            if is_lost(error):
                raise self._to_engine_error(error) from error
            if _PYTHON_MISMATCH.search(str(error)):
                raise ConfigError(
                    f"the Python of the Spark Connect server's executors cannot run lanes: {_python_error(error)}",
                    pipeline=self._pipeline.name,
                    hint="Install the Python version of this Airflow worker there, with the dependencies of this "
                    "package's extras.",
                ) from error
            raise WaveLostError(ErrorInfo(ErrorType.PROCESSING, without_ids(first_line(error)))) from error

    def revive(self) -> bool:
        """Reset the engine after the server or its session was lost, so that it can be started again.

        :return: False after :meth:`kill`: the engine must not be started again
        """
        if self._killed.is_set():
            return False
        if self._session is not None:
            _in_thread(self._session.client.close)  # waits for responses, which a lost server never sends
            self._session = None
        self.started = False
        return True

    def kill(self) -> None:
        """Cancel the wave that the server is running, within 2 s.

        May be called from a signal handler, and more than once.
        """
        self._killed.set()
        thread = threading.Thread(target=self._cancel, name="ckpt-cancel", daemon=True)
        with suppress(RuntimeError):  # no more threads can be started
            thread.start()
            thread.join(_KILL_SECONDS)

    def close(self) -> None:
        """Close the connection to the server; the session on the server stays for the next run."""
        session, self._session = self._session, None
        if session is not None:
            session.client.close()

    def _open(self, job: Job) -> EngineInfo:
        from airflow_provider_ckpt.spark.sql import silence_client_logs
        from airflow_provider_ckpt.spark.wave import check_transform

        silence_client_logs()
        session = self._session = open_session(self._pipeline, job.context.ledger, self._killed)
        return EngineInfo(_parallelism(session), check_transform(_as_any(session), job))

    def _work(self, wave: Wave) -> Sequence[Outcome]:
        from airflow_provider_ckpt.spark.wave import run_wave

        assert self._session is not None
        assert self._job is not None
        self._session.addTag(_tag(self._job))  # tags belong to a thread
        return run_wave(_as_any(self._session), self._job, wave)

    def _wait(self, future: Future[T], check: Check) -> T:
        """Wait for the result of a thread, and return it.

        :param future: future of the result
        :param check: called repeatedly while waiting; it raises an error if the run must stop
        """
        while not wait([future], _PAUSE).done:
            self._check_not_killed()
            check()
        if future.exception() is not None:
            self._check_not_killed()  # if kill() was called, report that instead of the error that it caused
        return future.result()

    def _check_not_killed(self) -> None:
        """Raise :class:`EngineError` if :meth:`kill` was called, so that the waiting thread ends."""
        if self._killed.is_set():
            raise EngineError("Spark was stopped.", pipeline=self._pipeline.name, hint=_NOTHING_LOST)

    def _cancel(self) -> None:
        """Cancel the wave that the server is running, if there is one, and close the connection to the server."""
        working = self._wave_future is not None and not self._wave_future.done()
        try:
            if working and self._session is not None and self._job is not None:
                self._session.interruptTag(_tag(self._job))
        except Exception as error:  # noqa: BLE001  # thread boundary; the next run cancels the wave
            log.warning(
                "The running wave of %s could not be cancelled; the next run cancels it: %s",
                self._pipeline.name,
                without_ids(str(error)),
            )
        self.close()

    def _to_engine_error(self, error: Exception) -> EngineError:
        """Convert an exception of PySpark to an :class:`EngineError`, which says that the server failed or was lost.

        Ids of sessions in its message are masked.

        :param error: the exception
        """
        from airflow_provider_ckpt.spark.sql import first_line

        what = "was lost" if is_lost(error) else "failed"
        return EngineError(
            f"the Spark Connect server {what}: {without_ids(first_line(error))}",
            pipeline=self._pipeline.name,
            hint=_NOTHING_LOST,
        )


def _python_error(error: Exception) -> str:
    """Return the line of a Python worker's traceback that names the import error or the version mismatch.

    The caller has checked that the traceback has such a line.
    """
    return next(line.strip() for line in str(error).splitlines() if _PYTHON_MISMATCH.search(line))


def _tag(job: Job) -> str:
    """Return the tag of a run's operations on the server, by which they are cancelled."""
    return f"ckpt-{job.context.pipeline}-{job.context.epoch}"


def _parallelism(session: SparkSession) -> int:
    """Return the number of tasks that the server runs at once.

    This is the default number of partitions, which the query plan of a range shows. The query is not executed.
    """
    explained = str(session.range(0, _RANGE_END)._explain_string())  # type: ignore[operator]  # a method of this class only
    found = re.search(r"splits=(\d+)", explained)
    if found is None:
        raise EngineError(
            f"the Spark Connect server's plan does not show how many tasks the server runs at once: {explained}",
            hint="Check that the server's version of Spark is supported.",
        )
    return int(found[1])


def _as_any(session: SparkSession) -> AnySession:
    """Return the session under the static type that ``spark/wave.py`` expects.

    Classic and Connect sessions share no class.
    """
    return cast("AnySession", session)


def _in_thread(function: Callable[..., T], *arguments: object) -> Future[T]:
    """Call a function in a daemon thread, and return at once a future of its result or error.

    :param function: the function
    :param arguments: its arguments
    """
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001  # thread boundary: result() raises it
            future.set_exception(error)

    threading.Thread(target=call, name="ckpt-connect", daemon=True).start()
    return future
