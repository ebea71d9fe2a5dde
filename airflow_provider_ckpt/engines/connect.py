"""The ``connect`` engine: waves on a Spark Connect server that is there already, so that nothing is started for a run.

This process is the driver: it sends each wave as one operation, tagged with the run's epoch, and commits what a
two-phase sink staged. A run that is killed cancels its operations; one that died leaves that to the next, which finds
the same session.
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
from airflow_provider_ckpt.engines.connect_server import is_gone
from airflow_provider_ckpt.engines.connect_session import open_session, without_ids
from airflow_provider_ckpt.replication.run.engine_protocol import Check, Ready, WaveLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as AnySession
    from pyspark.sql.connect.session import SparkSession

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.spark.job import Job

log = logging.getLogger(__name__)

_PAUSE = 0.03
_KILL_SECONDS = 2.0
_NOTHING_LOST = "Nothing is lost: the next run finds out from the receipts what was delivered."
_UNFIT = re.compile(r"PYTHON_VERSION_MISMATCH|ModuleNotFoundError|ImportError")
_MANY = 1 << 40

T = TypeVar("T")


class ConnectEngine:
    """Hands a Spark Connect server waves.

    :param pipeline: its ``run`` part names the connection, of type ``spark_connect``
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._killed = threading.Event()
        self._job: Job | None = None
        self._session: SparkSession | None = None
        self._opening: Future[Ready] | None = None
        self._working: Future[Sequence[Outcome]] | None = None
        self.started = False

    def start(self, job: Job) -> None:
        """Begin to open the session and return at once."""
        import pyspark.sql.connect.session  # noqa: F401  # now, for two threads must not import it at once

        self._go_on()
        self._job = job
        self._opening = _in_thread(self._open, job)
        self.started = True

    def ready(self, check: Check) -> Ready:
        """Wait until the session is there and the transform is checked."""
        from pyspark.errors import PySparkException

        assert self._opening is not None
        try:
            return self._wait(self._opening, check)
        except PySparkException as error:
            self._go_on()
            raise self._failed(error) from error

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Work a wave off; another thread does, so that this one can check."""
        from pyspark.errors import PySparkException

        from airflow_provider_ckpt.spark.sql import first_line

        self._go_on()
        self._working = _in_thread(self._work, wave)
        try:
            return self._wait(self._working, check)
        except PySparkException as error:
            self._go_on()
            if is_gone(error):
                raise self._failed(error) from error
            if _UNFIT.search(str(error)):
                raise ConfigError(
                    f"the Python of the Spark Connect server's executors cannot run lanes: {_reason(error)}",
                    pipeline=self._pipeline.name,
                    hint="It must be of this worker's version, and have this package's extras.",
                ) from error
            raise WaveLostError(ErrorInfo(ErrorType.PROCESSING, without_ids(first_line(error)))) from error

    def revive(self) -> bool:
        """After the server or its session was lost: be as new, unless it was killed."""
        if self._killed.is_set():
            return False
        if self._session is not None:
            _in_thread(self._session.client.close)  # which waits for answers that a lost server does not give
            self._session = None
        self.started = False
        return True

    def kill(self) -> None:
        """Cancel the wave that runs; within 2 s, also from a signal handler. Twice does no harm."""
        self._killed.set()
        thread = threading.Thread(target=self._cancel, name="ckpt-cancel", daemon=True)
        with suppress(RuntimeError):  # the machine has no thread left
            thread.start()
            thread.join(_KILL_SECONDS)

    def close(self) -> None:
        """Close the channel and leave the session as it is, for the next run."""
        session, self._session = self._session, None
        if session is not None:
            session.client.close()

    def _open(self, job: Job) -> Ready:
        from airflow_provider_ckpt.spark.sql import hush
        from airflow_provider_ckpt.spark.wave import check_transform

        hush()
        session = self._session = open_session(self._pipeline, job.context.ledger, self._killed)
        return Ready(_slots(session), check_transform(_as_any(session), job))

    def _work(self, wave: Wave) -> Sequence[Outcome]:
        from airflow_provider_ckpt.spark.wave import run_wave

        assert self._session is not None
        assert self._job is not None
        self._session.addTag(_tag(self._job))  # tags are the thread's own
        return run_wave(_as_any(self._session), self._job, wave)

    def _wait(self, future: Future[T], check: Check) -> T:
        while not wait([future], _PAUSE).done:
            self._go_on()
            check()
        if future.exception() is not None:
            self._go_on()  # whatever it says, it ended because it was stopped
        return future.result()

    def _go_on(self) -> None:
        """Refuse what comes after :meth:`kill`, by which a killed task's thread learns that it is over."""
        if self._killed.is_set():
            raise EngineError("Spark was stopped.", pipeline=self._pipeline.name, hint=_NOTHING_LOST)

    def _cancel(self) -> None:
        working = self._working is not None and not self._working.done()
        try:
            if working and self._session is not None and self._job is not None:
                self._session.interruptTag(_tag(self._job))
        except Exception as error:  # noqa: BLE001  # the thread's boundary; the next run cancels what this could not
            log.warning(
                "The wave of %s that runs could not be cancelled: %s", self._pipeline.name, without_ids(str(error))
            )
        self.close()

    def _failed(self, error: Exception) -> EngineError:
        from airflow_provider_ckpt.spark.sql import first_line

        what = "was lost" if is_gone(error) else "failed"
        return EngineError(
            f"the Spark Connect server {what}: {without_ids(first_line(error))}",
            pipeline=self._pipeline.name,
            hint=_NOTHING_LOST,
        )


def _reason(error: Exception) -> str:
    """The line of a Python worker's traceback that says what was wrong."""
    return next(line.strip() for line in str(error).splitlines() if _UNFIT.search(line))


def _tag(job: Job) -> str:
    """By which a run's operations are known, also to other processes that have the session."""
    return f"ckpt-{job.context.pipeline}-{job.context.epoch}"


def _slots(session: SparkSession) -> int:
    """How many tasks the server runs at once, which it tells by the partitions of a range that is not asked for."""
    told = str(session.range(0, _MANY)._explain_string())  # type: ignore[operator]  # a method of its own class
    found = re.search(r"splits=(\d+)", told)
    if found is None:
        raise EngineError(f"the Spark Connect server does not say how wide it is: {told}")
    return int(found[1])


def _as_any(session: SparkSession) -> AnySession:
    """A session as the lanes' side knows it; the two kinds have no type in common."""
    return cast("AnySession", session)


def _in_thread(function: Callable[..., T], *arguments: object) -> Future[T]:
    """Call a function in a thread that keeps nothing from ending."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001  # the thread's boundary: raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=call, name="ckpt-connect", daemon=True).start()
    return future
