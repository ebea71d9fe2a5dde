"""The run directory (mode 0700): how the process that holds the lease and the Spark driver talk through files.

``job.json`` (0600, holds passwords, removed by the driver once read); ``waves.jsonl``, appended by the lease holder;
``replies.jsonl``, appended by the driver. A line counts once its newline is there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.spark.job import Job

_JOB, _WAVES, _REPLIES = "job.json", "waves.jsonl", "replies.jsonl"
_PAUSE = 0.02


class Lines:
    """Reads whole lines from a file that another process appends to.

    :param path: may not exist yet
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._rest = b""

    def read(self) -> list[dict[str, Any]]:
        """What was appended since the last call, as JSON documents."""
        if self._file is None:
            if not self._path.exists():
                return []
            self._file = self._path.open("rb")
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class DriverSide:
    """The driver's end."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._waves = Lines(self._directory / _WAVES)

    def job(self) -> Job:
        """Read the job and remove its file, which holds passwords."""
        path = self._directory / _JOB
        job = Job.from_json(json.loads(path.read_text()))
        path.unlink()
        return job

    def waves(self) -> Iterator[Wave]:
        """Waves as they come, until told to stop."""
        while True:
            for line in self._waves.read():
                if line.get("stop"):
                    return
                yield Wave.from_json(line)
            time.sleep(_PAUSE)

    def ready(self, parallelism: int, columns: Sequence[tuple[str, str]]) -> None:
        """Say that Spark is up.

        :param parallelism: how many tasks run at once
        :param columns: what the transform puts out: name and Spark SQL type
        """
        self._reply({"ready": parallelism, "columns": list(columns)})

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
        descriptor = os.open(self._directory / _JOB, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(job.to_json(), file)

    def send(self, wave: Wave) -> None:
        """Hand the driver a wave."""
        _append(self._directory / _WAVES, wave.to_json())

    def stop(self) -> None:
        """Tell the driver to end."""
        _append(self._directory / _WAVES, {"stop": True})

    def replies(self) -> list[dict[str, Any]]:
        """What the driver said since the last call."""
        return self._replies.read()

    def close(self) -> None:
        """Let go of the files."""
        self._replies.close()


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n")
