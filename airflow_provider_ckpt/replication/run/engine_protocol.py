"""Interface through which a run uses Spark: start, report parallelism, run waves, close."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.spark.job import Job

Check = Callable[[], None]
"""Called repeatedly while an engine waits; raises when the run must stop (lease lost, cancelled)."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """State of a started Spark.

    :param parallelism: number of tasks that run at once
    :param columns: name and Spark SQL type of each column of the transform's result
    :param ui: URL of Spark's web UI while it runs; None if there is none
    :param application: id under which a history server shows it; None if it logs no events for one
    """

    parallelism: int
    columns: Sequence[tuple[str, str]]
    ui: str | None = None
    application: str | None = None


class WaveLostError(Exception):
    """A wave ended without outcomes although Spark is alive, as when a worker died; only receipts tell its result."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


class Engine(Protocol):
    """Spark for one run; nothing is started before :meth:`start`.

    :ivar started: whether :meth:`start` was called
    :ivar counts_deaths: whether the loss of Spark counts against a batch that ran alone; not if other runs share it
    """

    @property
    def started(self) -> bool:
        """See above."""

    @property
    def counts_deaths(self) -> bool:
        """See above."""

    def start(self, job: Job) -> None:
        """Start Spark in the background, so that planning continues meanwhile."""

    def ready(self, check: Check) -> EngineInfo:
        """Wait until Spark is up.

        :raises EngineError: if it cannot be started
        :raises ConfigError: if the transform is invalid
        """

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Execute a wave and return its outcomes.

        :raises WaveLostError: if the wave was lost but another may be run
        :raises EngineError: if Spark itself was lost
        """

    def revive(self) -> bool:
        """Clean up after Spark was lost, so that :meth:`start` may be called again.

        :returns: whether it may be; not if Spark was ended on purpose, or is not the engine's own
        """

    def kill(self) -> None:
        """End Spark immediately, from any thread."""

    def close(self) -> None:
        """Shut Spark down in an orderly way."""
