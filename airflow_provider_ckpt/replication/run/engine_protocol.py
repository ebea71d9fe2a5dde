"""What a run asks of Spark: start, say how wide you are, run a wave, end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.spark.job import Job

Check = Callable[[], None]
"""Called again and again while an engine waits; raises when the run must stop (lease lost, cancelled)."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Spark is up.

    :param parallelism: how many tasks run at once
    :param columns: what the transform puts out: name and Spark SQL type
    :param ui: the address of Spark's own pages, while it runs; None if there are none
    :param application: the id under which a history server shows it, None if it logs no events for one
    """

    parallelism: int
    columns: Sequence[tuple[str, str]]
    ui: str | None = None
    application: str | None = None


class WaveLostError(Exception):
    """A wave ended without outcomes while Spark lives on: a worker died, say. Only receipts know what it did."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


class Engine(Protocol):
    """One Spark, for one run. Nothing is started before :meth:`start`."""

    started: bool

    def start(self, job: Job) -> None:
        """Begin to start Spark and return at once, so that planning goes on meanwhile."""

    def ready(self, check: Check) -> Ready:
        """Wait until Spark is up.

        :raises EngineError: if it cannot be started
        :raises ConfigError: if the transform cannot be used
        """

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Work a wave off.

        :raises WaveLostError: if the wave was lost but another may be run
        :raises EngineError: if Spark itself was lost
        """

    def revive(self) -> bool:
        """After Spark was lost: let go of what is left of it, so that :meth:`start` may be called again.

        :returns: whether it may; not where Spark was ended on purpose, or is not the engine's own
        """

    def kill(self) -> None:
        """End Spark now, from any thread."""

    def close(self) -> None:
        """End Spark in good order."""
