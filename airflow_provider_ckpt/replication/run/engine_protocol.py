"""Define the interface by which a run uses Spark: start it, learn its parallelism, run waves, close it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.spark.job import Job

Check = Callable[[], None]
"""Function that an engine calls repeatedly while it waits, and that raises an error if the run must stop.

A run must stop, for example, if its lease was lost or its task was killed.
"""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Properties of Spark that an engine reports once Spark has started.

    :param parallelism: number of tasks that run at once
    :param columns: name and Spark SQL type of each column of the transform's result
    :param ui: URL of Spark's web UI while it runs; None if there is none
    :param application: id under which a history server shows the Spark application; None if it logs no events
    """

    parallelism: int
    columns: Sequence[tuple[str, str]]
    ui: str | None = None
    application: str | None = None


class WaveLostError(Exception):
    """Error for a wave that ended without outcomes although Spark is alive, as when a worker died.

    Only the sink's receipts show which of its batches were delivered.

    :param error: the error that ended the wave
    """

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


class Engine(Protocol):
    """Interface to Spark for one run; nothing is started before :meth:`start`."""

    @property
    def started(self) -> bool:
        """Return whether :meth:`start` was called."""

    @property
    def loss_blames_batch(self) -> bool:
        """Return whether the loss of Spark counts as a failure of a batch that ran alone.

        It is False if other runs share Spark, since a batch of theirs may have been the cause.
        """

    def start(self, job: Job) -> None:
        """Start Spark in the background for a run, which continues planning meanwhile.

        :param job: description of the run
        """

    def ready(self, check: Check) -> EngineInfo:
        """Wait until Spark has started and has checked the transform.

        :param check: called repeatedly while waiting
        :raises EngineError: if Spark cannot be started
        :raises ConfigError: if the transform is invalid
        """

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Execute a wave in Spark, and return an outcome for each of its batches.

        :param wave: the batches, by lane
        :param check: called repeatedly while the wave runs
        :raises WaveLostError: if the wave was lost but Spark can run another one
        :raises EngineError: if Spark itself was lost
        """

    def revive(self) -> bool:
        """Clean up after Spark was lost, so that :meth:`start` may be called again.

        :returns: whether :meth:`start` may be called; False if Spark was ended on purpose, or is not started by the
            engine
        """

    def kill(self) -> None:
        """End the run's work in Spark at once, from any thread: Spark itself, or the run's jobs if Spark is shared."""

    def close(self) -> None:
        """Shut Spark down in an orderly way; leave it if it is shared."""
