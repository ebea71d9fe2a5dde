"""Common part of the engines whose driver runs the waves that it finds in a run directory.

The directory has mode 0700, and ``spark/driver/run_directory_protocol.py`` describes its files.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
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
from airflow_provider_ckpt.engines.run_directory import RunDirectory, remove_abandoned
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo, WaveLostError
from airflow_provider_ckpt.spark.driver.run_directory_protocol import LeaseHolderSide

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.spark.job import Job

NOTHING_LOST = "Nothing is lost: the next run finds out from the receipts what was delivered."
PAUSE = 0.03
"""Seconds between two looks at the driver's replies."""


class RunDirectoryEngine(ABC):
    """Engine that sends waves to a driver by files, and waits for its replies.

    :param pipeline: the pipeline
    :param on_ready: called once Spark is up
    """

    def __init__(self, pipeline: Pipeline, on_ready: Callable[[EngineInfo], None] | None = None) -> None:
        self._pipeline = pipeline
        self._on_ready = on_ready
        self._directory: RunDirectory | None = None
        self._protocol: LeaseHolderSide | None = None
        self._ready: EngineInfo | None = None
        self._killed = False
        self.started = False

    def start(self, job: Job) -> None:
        """Write the job to a new run directory, begin to start or find a driver, and return at once."""
        self._check_not_killed()
        self.started = True
        try:
            self._directory = RunDirectory()
            self._protocol = LeaseHolderSide(self._directory.path, notify=self._notify)
            self._protocol.write_job(job)
            self._launch(self._directory)
        except BaseException:
            self._remove_directory()
            raise
        remove_abandoned()

    def ready(self, check: Check) -> EngineInfo:
        """Wait until Spark is up."""
        while self._ready is None:
            for reply in self._replies(check):
                if "ready" not in reply:
                    raise _job_error(ErrorInfo.from_json(reply["error"]), self._pipeline.name)
                columns = [(name, kind) for name, kind in reply["columns"]]
                self._ready = EngineInfo(reply["ready"], columns, reply["ui"], reply["application"])
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

    def _replies(self, check: Check) -> list[dict[str, Any]]:
        """Wait for the driver's next replies and return them.

        :raises EngineError: if the driver has ended
        """
        assert self._protocol is not None
        while True:
            self._check_not_killed()
            check()
            alive = self._is_alive()
            replies = self._protocol.replies()
            if replies:
                return replies
            if not alive:
                self._check_not_killed()
                raise self._end_error()
            self._wait()

    def _check_not_killed(self) -> None:
        """Raise an error after a kill, to end the thread of a killed task."""
        if self._killed:
            raise EngineError("Spark was stopped.", pipeline=self._pipeline.name, hint=NOTHING_LOST)

    def _remove_directory(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.remove()

    @abstractmethod
    def _launch(self, directory: RunDirectory) -> None:
        """Start a driver, or find one, in the background.

        :param directory: the run directory, which the driver is to serve
        """

    @abstractmethod
    def _is_alive(self) -> bool:
        """Return whether the driver may still reply."""

    @abstractmethod
    def _end_error(self) -> EngineError:
        """Return the error for a driver that has ended, with the reason."""

    @abstractmethod
    def revive(self) -> bool:
        """Clean up after Spark was lost; return whether :meth:`start` may be called again."""

    @abstractmethod
    def kill(self) -> None:
        """End the run's work in Spark immediately; may be called from any thread."""

    @abstractmethod
    def close(self) -> None:
        """End the run in an orderly way."""

    @abstractmethod
    def _notify(self) -> None:
        """Tell the driver that there is a wave."""

    def _wait(self) -> None:
        """Wait a moment for a reply."""
        time.sleep(PAUSE)


def _job_error(error: ErrorInfo, pipeline: str) -> CkptError:
    """Return the exception for an error of the job itself, such as an expression that does not parse.

    :param error: the error that the driver reported
    :param pipeline: name of the pipeline
    """
    known = (ConfigError, DslParseError, InvalidFilterError, InvalidTransformError)
    kind = next((kind for kind in known if kind.type is error.type), EngineError)
    return kind(error.message, pipeline=pipeline)
