"""``submit`` engine: one Spark application per run, started by the apache-spark provider's hook in client mode.

The driver runs waves that it finds in a run directory of mode 0700 (``spark/driver/run_directory_protocol.py``). Driver
and ``spark-submit`` are killed when the process that started them ends, so a killed task leaves no Spark running.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import (
    CkptError,
    ConfigError,
    DslParseError,
    EngineError,
    ErrorInfo,
    InvalidFilterError,
    InvalidTransformError,
)
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.engines import exit_reason
from airflow_provider_ckpt.engines.run_directory import RunDirectory, remove_abandoned
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo, WaveLostError
from airflow_provider_ckpt.spark.driver.run_directory_protocol import LeaseHolderSide

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.engines.launcher import Launcher
    from airflow_provider_ckpt.spark.job import Job

log = logging.getLogger(__name__)

_PAUSE = 0.03
_STOP_SECONDS = 20.0
_KILL_SECONDS = 2.0
_NOTHING_LOST = "Nothing is lost: the next run finds out from the receipts what was delivered."


class SubmitEngine:
    """Engine that starts Spark for one run and sends it waves.

    :param pipeline: its ``run`` part names the Spark connection and properties; without a connection the master is
        ``local[*]``
    :param on_ready: called once Spark is up
    :param stop_seconds: seconds that Spark may take to end by itself
    :ivar error: error with which ``spark-submit`` ended; None while it runs, or if it ended without one
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        on_ready: Callable[[EngineInfo], None] | None = None,
        stop_seconds: float = _STOP_SECONDS,
    ) -> None:
        self._pipeline = pipeline
        self._on_ready = on_ready
        self._stop_seconds = stop_seconds
        self._directory: RunDirectory | None = None
        self._protocol: LeaseHolderSide | None = None
        self._launcher: Launcher | None = None
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self._ready: EngineInfo | None = None
        self._killed = False
        self.started = False

    def start(self, job: Job) -> None:
        """Start ``spark-submit`` and return at once."""
        from airflow_provider_ckpt.engines.launcher import Launcher

        self._check_not_killed()
        self.started = True
        try:
            self._directory = RunDirectory()
            self._protocol = LeaseHolderSide(self._directory.path)
            self._launcher = Launcher(self._pipeline, self._directory.path)
            self._protocol.write_job(job)
            self._thread = threading.Thread(target=self._launch, name="ckpt-spark-submit", daemon=True)
            self._thread.start()
        except BaseException:
            self._remove_directory()
            raise
        log.info("Starting Spark for %s", self._pipeline.name)
        remove_abandoned()

    def ready(self, check: Check) -> EngineInfo:
        """Wait until Spark is up."""
        while self._ready is None:
            for reply in self._replies(check):
                if "ready" not in reply:
                    raise _job_error(ErrorInfo.from_json(reply["error"]), self._pipeline.name)
                columns = [(name, kind) for name, kind in reply["columns"]]
                self._ready = EngineInfo(reply["ready"], columns, reply["ui"], reply["application"])
                assert self._launcher is not None
                self._launcher.forget_properties()
                if self._on_ready is not None:
                    self._on_ready(self._ready)
        return self._ready

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Send the driver a wave and wait for its outcomes."""
        assert self._protocol is not None
        self._check_not_killed()
        self._protocol.send(wave)
        while True:
            for reply in self._replies(check):
                if reply.get("wave") != wave.number:
                    continue
                if "outcomes" in reply:
                    return [Outcome.from_json(item) for item in reply["outcomes"]]
                error = ErrorInfo.from_json(reply["error"])
                raise _job_error(error, self._pipeline.name) if reply["final"] else WaveLostError(error)

    def revive(self) -> bool:
        """Reset the engine after Spark ended by itself.

        :return: False after :meth:`kill`: the engine must not be started again
        """
        if self._killed:
            return False
        self._remove_directory()
        self._protocol = self._launcher = self._thread = self.error = self._ready = None
        self.started = False
        return True

    def kill(self) -> None:
        """Kill ``spark-submit`` within 2 s; the driver dies with it.

        May be called from a signal handler, and more than once.
        """
        self._killed = True
        deadline = time.monotonic() + _KILL_SECONDS
        if self._thread is not None and self._launcher is not None:
            while self._thread.is_alive() and time.monotonic() < deadline and not self._launcher.kill():
                time.sleep(_PAUSE)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        self._remove_directory()

    def close(self) -> None:
        """Tell the driver to end, and kill it if it does not."""
        if self._directory is not None and self._protocol is not None and self._thread is not None:
            self._protocol.stop()
            self._thread.join(self._stop_seconds)
        self.kill()

    def _launch(self) -> None:
        assert self._launcher is not None
        assert self._protocol is not None
        try:
            self._launcher.launch()
        except BaseException as error:  # noqa: BLE001  # thread boundary: reported to the waiting thread
            self.error = error
        finally:
            self._protocol.delete_job()

    def _replies(self, check: Check) -> list[dict[str, Any]]:
        """Wait for the driver's next replies and return them.

        :raises EngineError: if Spark has ended
        """
        assert self._protocol is not None
        assert self._thread is not None
        while True:
            self._check_not_killed()
            check()
            alive = self._thread.is_alive()
            replies = self._protocol.replies()
            if replies:
                return replies
            if not alive:
                self._check_not_killed()
                raise self._end_error()
            time.sleep(_PAUSE)

    def _check_not_killed(self) -> None:
        """Raise an error after :meth:`kill`, to end the thread of a killed task."""
        if self._killed:
            raise EngineError("Spark was stopped.", pipeline=self._pipeline.name, hint=_NOTHING_LOST)

    def _end_error(self) -> EngineError:
        assert self._launcher is not None
        reason = exit_reason.explain(self._launcher.status, self._launcher.last_lines, self.error)
        return EngineError(f"Spark ended unexpectedly: {reason}.", pipeline=self._pipeline.name, hint=_NOTHING_LOST)

    def _remove_directory(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.remove()


def _job_error(error: ErrorInfo, pipeline: str) -> CkptError:
    """Return an error of the job itself, such as an expression that does not parse."""
    known = (ConfigError, DslParseError, InvalidFilterError, InvalidTransformError)
    kind = next((kind for kind in known if kind.type is error.type), EngineError)
    return kind(error.message, pipeline=pipeline)
