"""The run directory (mode 0700): how the process that holds the lease and the Spark driver talk through files.

``job.json`` (0600, holds passwords, gone before the driver looks into what it read); ``waves.jsonl``, appended by the
lease holder; ``replies.jsonl``, appended by the driver. A line counts once its newline is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.spark.job import Job

_JOB, _WAVES, _REPLIES = "job.json", "waves.jsonl", "replies.jsonl"
_PAUSE = 0.02


class Lines:
    """Reads whole lines from a file that another process appends to.

    :param path: may not exist yet, or no more: then nothing is said
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """What was appended since the last call, as JSON documents."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]


class DriverSide:
    """The driver's end."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._waves = Lines(self._directory / _WAVES)

    def job(self) -> Job:
        """Take the job; its file, which holds passwords, is gone even if the job cannot be used."""
        path = self._directory / _JOB
        text = path.read_text()
        path.unlink()
        return Job.from_json(json.loads(text))

    def waves(self) -> Iterator[Wave]:
        """Waves as they come, until told to stop."""
        while True:
            for line in self._waves.read():
                if line.get("stop"):
                    return
                yield Wave.from_json(line)
            time.sleep(_PAUSE)

    def ready(
        self,
        parallelism: int,
        columns: Sequence[tuple[str, str]],
        *,
        ui: str | None = None,
        application: str | None = None,
    ) -> None:
        """Say that Spark is up.

        :param parallelism: how many tasks run at once
        :param columns: what the transform puts out: name and Spark SQL type
        :param ui: the address of Spark's own pages, while it runs
        :param application: the id under which a history server will show it
        """
        self._reply({"ready": parallelism, "columns": list(columns), "ui": ui, "application": application})

    def finished(self, number: int, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Say what became of a wave's batches."""
        self._reply({"wave": number, "outcomes": [outcome.to_json() for outcome in outcomes], "seconds": seconds})

    def failed(self, number: int, error: ErrorInfo, *, final: bool) -> None:
        """Say that a wave was lost.

        :param final: whether trying again cannot help
        """
        self._reply({"wave": number, "error": error.to_json(), "final": final})

    def _reply(self, line: dict[str, Any]) -> None:
        _append(self._directory / _REPLIES, line)


class ControlSide:
    """The lease holder's end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._replies = Lines(directory / _REPLIES)

    def offer(self, job: Job) -> None:
        """Leave the job for the driver."""
        with private_files.create(self._directory / _JOB) as file:
            file.write(json.dumps(job.to_json()).encode())

    def withdraw(self) -> None:
        """Remove the job if the driver did not live to take it."""
        (self._directory / _JOB).unlink(missing_ok=True)

    def send(self, wave: Wave) -> None:
        """Hand the driver a wave."""
        _append(self._directory / _WAVES, wave.to_json())

    def stop(self) -> None:
        """Tell the driver to end."""
        _append(self._directory / _WAVES, {"stop": True})

    def replies(self) -> list[dict[str, Any]]:
        """What the driver said since the last call."""
        return self._replies.read()


def _append(path: Path, line: dict[str, Any]) -> None:
    with private_files.append(path) as file:
        file.write(json.dumps(line).encode() + b"\n")
