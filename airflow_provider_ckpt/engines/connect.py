"""``connect`` engine: run waves on an existing Spark Connect server, so that no Spark is started for a run.

This process is the driver: it sends each wave as one operation, tagged with the run's epoch, and commits what a
two-phase sink staged. A killed run cancels its operations. If it dies before that, the next run cancels them, as it
uses the same session.
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
from airflow_provider_ckpt.core.wave import Outcome, Wave
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
    """Engine that runs waves on a Spark Connect server.

    :param pipeline: its ``run`` part names the connection, of type ``spark_connect``
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._killed = threading.Event()
        self._job: Job | None = None
        self._session: SparkSession | None = None
        self._session_future: Future[EngineInfo] | None = None
        self._wave_future: Future[Sequence[Outcome]] | None = None
        self.started = False
        self.counts_deaths = True

    def start(self, job: Job) -> None:
        """Begin to open the session in a thread, and return at once."""
        import pyspark.sql.connect.session  # noqa: F401  # now: two threads must not import it at once

        self._check_not_killed()
        self._job = job
        self._session_future = _in_thread(self._open, job)
        self.started = True

    def ready(self, check: Check) -> EngineInfo:
        """Wait until the session is open and the transform is checked."""
        from pyspark.errors import PySparkException

        assert self._session_future is not None
        try:
            return self._wait(self._session_future, check)
        except PySparkException as error:
            self._check_not_killed()
            raise self._to_engine_error(error) from error

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Run a wave on the server and return its outcomes; call ``check`` repeatedly while the server works."""
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
                    hint="It must be of this worker's version, and have this package's extras.",
                ) from error
            raise WaveLostError(ErrorInfo(ErrorType.PROCESSING, without_ids(first_line(error)))) from error

    def revive(self) -> bool:
        """Reset the engine after the server or its session was lost.

        :return: False after :meth:`kill`: the engine must not be started again
        """
        if self._killed.is_set():
            return False
        if self._session is not None:
            _in_thread(self._session.client.close)  # waits for responses, which a lost server does not send
            self._session = None
        self.started = False
        return True

    def kill(self) -> None:
        """Cancel the running wave within 2 s. May be called from a signal handler, and more than once."""
        self._killed.set()
        thread = threading.Thread(target=self._cancel, name="ckpt-cancel", daemon=True)
        with suppress(RuntimeError):  # no more threads can be started
            thread.start()
            thread.join(_KILL_SECONDS)

    def close(self) -> None:
        """Close the channel and keep the session for the next run."""
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
        """Wait for the result of a thread, and call ``check`` repeatedly meanwhile."""
        while not wait([future], _PAUSE).done:
            self._check_not_killed()
            check()
        if future.exception() is not None:
            self._check_not_killed()  # if it was killed, that is the cause of the error
        return future.result()

    def _check_not_killed(self) -> None:
        """Raise an error after :meth:`kill`, to end the thread of a killed task."""
        if self._killed.is_set():
            raise EngineError("Spark was stopped.", pipeline=self._pipeline.name, hint=_NOTHING_LOST)

    def _cancel(self) -> None:
        """Cancel the running wave, if there is one, and close the connection to the server."""
        working = self._wave_future is not None and not self._wave_future.done()
        try:
            if working and self._session is not None and self._job is not None:
                self._session.interruptTag(_tag(self._job))
        except Exception as error:  # noqa: BLE001  # thread boundary; the next run cancels the wave
            log.warning(
                "The running wave of %s could not be cancelled: %s", self._pipeline.name, without_ids(str(error))
            )
        self.close()

    def _to_engine_error(self, error: Exception) -> EngineError:
        """Return the error for a server that was lost or has failed."""
        from airflow_provider_ckpt.spark.sql import first_line

        what = "was lost" if is_lost(error) else "failed"
        return EngineError(
            f"the Spark Connect server {what}: {without_ids(first_line(error))}",
            pipeline=self._pipeline.name,
            hint=_NOTHING_LOST,
        )


def _python_error(error: Exception) -> str:
    """Return the line of a Python worker's traceback that names the error."""
    return next(line.strip() for line in str(error).splitlines() if _PYTHON_MISMATCH.search(line))


def _tag(job: Job) -> str:
    """Return the tag of a run's operations, by which other processes with the same session find them."""
    return f"ckpt-{job.context.pipeline}-{job.context.epoch}"


def _parallelism(session: SparkSession) -> int:
    """Return the number of tasks that the server runs at once.

    That is the default number of partitions, which the plan of a range shows; the range is not executed.
    """
    explained = str(session.range(0, _RANGE_END)._explain_string())  # type: ignore[operator]  # a method of this class only
    found = re.search(r"splits=(\d+)", explained)
    if found is None:
        raise EngineError(f"the Spark Connect server does not tell how many tasks it runs at once: {explained}")
    return int(found[1])


def _as_any(session: SparkSession) -> AnySession:
    """Return the session under the type that lanes use; the two kinds of session have no type in common."""
    return cast("AnySession", session)


def _in_thread(function: Callable[..., T], *arguments: object) -> Future[T]:
    """Call a function in a daemon thread, and return the future of its result."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001  # thread boundary: result() raises it
            future.set_exception(error)

    threading.Thread(target=call, name="ckpt-connect", daemon=True).start()
    return future
