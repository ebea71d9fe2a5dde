"""Common base of the engines that exchange files with a driver in a run directory.

The directory has mode 0700 and belongs to one run; ``spark/driver/run_directory_protocol.py`` describes its files.
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
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.run_directory import RunDirectory, remove_abandoned
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo, WaveLostError
from airflow_provider_ckpt.spark.driver.run_directory_protocol import LeaseHolderSide

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.spark.job import Job

NOTHING_LOST = "Nothing is lost: the next run finds out from the receipts what was delivered."
PAUSE = 0.03
"""Seconds between two reads of the driver's replies."""


class RunDirectoryEngine(ABC):
    """Engine that sends waves to a driver by files in a run directory, and waits for the driver's replies.

    Subclasses start or find the driver; together with this class they implement :class:`~.engine_protocol.Engine`.

    :param pipeline: the pipeline's declaration
    :param on_ready: called once Spark has started, with what :meth:`ready` returns; None to call nothing
    :param parent: directory in which the run directory is created; None for the temporary folder
    :ivar started: whether :meth:`start` was called
    """

    def __init__(
        self,
        pipeline: Pipeline,
        on_ready: Callable[[EngineInfo], None] | None = None,
        parent: Path | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._on_ready = on_ready
        self._parent = parent
        self._directory: RunDirectory | None = None
        self._protocol: LeaseHolderSide | None = None
        self._ready: EngineInfo | None = None
        self._killed = False
        self.started = False

    def start(self, job: Job) -> None:
        """Write the job to a new run directory, begin to start or find a driver, and return at once.

        :param job: description of the run
        """
        self._check_not_killed()
        self.started = True
        directory = self._directory = RunDirectory(self._parent)  # a kill may remove it at any moment
        try:
            self._protocol = LeaseHolderSide(directory.path, notify=self._notify)
            self._protocol.write_job(job)
            self._check_not_killed()
            self._launch(directory)
        except BaseException:
            self._remove_directory()
            self._check_not_killed()
            raise
        remove_abandoned()

    def ready(self, check: Check) -> EngineInfo:
        """Wait until Spark has started and has checked the transform; see :meth:`Engine.ready`.

        :param check: called repeatedly while waiting; it raises an error if the run must stop
        :return: Spark's parallelism, the columns of the transform's result, and address and id of the Spark application
        :raises ConfigError: if the transform or another part of the declaration is not valid
        :raises EngineError: if Spark does not start, or cannot check the transform for another reason
        """
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
        """Send the driver a wave, and return an outcome for each of its batches; see :meth:`Engine.run`.

        :param wave: the batches, by lane
        :param check: called repeatedly while waiting; it raises an error if the run must stop
        """
        assert self._protocol is not None
        try:
            self._protocol.send(wave)
        except FileNotFoundError:
            self._check_not_killed()
            raise
        while True:
            for reply in self._replies(check):
                if reply.get("wave") != wave.number:
                    continue
                if "outcomes" in reply:
                    return [Outcome.from_json(item) for item in reply["outcomes"]]
                error = ErrorInfo.from_json(reply["error"])
                raise _job_error(error, self._pipeline.name) if reply["final"] else WaveLostError(error)

    def _replies(self, check: Check) -> list[dict[str, Any]]:
        """Wait for further replies of the driver and return them, parsed; at least one.

        :param check: called repeatedly while waiting; it raises an error if the run must stop
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
        """Raise :class:`EngineError` if :meth:`kill` was called, so that the waiting thread ends."""
        if self._killed:
            raise EngineError("Spark was stopped.", pipeline=self._pipeline.name, hint=NOTHING_LOST)

    def _remove_directory(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.remove()

    @abstractmethod
    def _launch(self, directory: RunDirectory) -> None:
        """Begin to start a driver, or to find one, in the background.

        :param directory: the run directory, from which the driver is to read the job and the waves
        """

    @abstractmethod
    def _is_alive(self) -> bool:
        """Return whether a reply may still come: the driver lives, or is still being started or found."""

    @abstractmethod
    def _end_error(self) -> EngineError:
        """Return the error for a driver that has ended unexpectedly; its message tells why the driver ended."""

    @abstractmethod
    def revive(self) -> bool:
        """Clean up after Spark was lost, and return whether :meth:`start` may be called again.

        After :meth:`kill`, the result is False.
        """

    @abstractmethod
    def kill(self) -> None:
        """End the run's work in Spark immediately. May be called from any thread."""

    @abstractmethod
    def close(self) -> None:
        """End the run's work in Spark after its last wave."""

    @abstractmethod
    def _notify(self) -> None:
        """Tell the Spark driver that a new wave was written to the run directory, unless the driver polls for waves."""

    def _wait(self) -> None:
        """Wait for a new reply of the driver, for :data:`PAUSE` seconds at most."""
        time.sleep(PAUSE)


def _job_error(error: ErrorInfo, pipeline: str) -> CkptError:
    """Return the exception to raise for an error that the driver reported.

    An invalid declaration, such as an expression that does not parse, becomes a :class:`ConfigError`, any other error
    an :class:`EngineError`.

    :param error: the error that the driver reported
    :param pipeline: name of the pipeline, for the message
    """
    known = (ConfigError, DslParseError, InvalidFilterError, InvalidTransformError)
    kind = next((kind for kind in known if kind.type is error.type), EngineError)
    return kind(error.message, pipeline=pipeline)
