"""Protocol of the run directory: files through which the lease holder and the Spark driver communicate.

The lease holder is the process that holds the pipeline's lease, such as an Airflow task. The directory has mode 0700
and exists for one run. The lease holder writes ``job.json`` (mode 0600), which contains passwords; the driver deletes
it before it parses the text. Then the lease holder appends waves to ``waves.jsonl``, and the driver appends its replies
to ``replies.jsonl``. A line is complete once its newline is written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.spark.job import Job

PROPERTIES = "spark.properties"
"""Name of the file with Spark's properties, which may contain secrets. Spark reads it before the driver's code runs."""

_JOB, _WAVES, _REPLIES = "job.json", "waves.jsonl", "replies.jsonl"
_PAUSE = 0.02


def _sleep() -> bool:
    """Wait for 20 ms and return True, for "the lease holder is alive": its end would have killed this driver, too."""
    time.sleep(_PAUSE)
    return True


def _no_notification() -> None:
    """Do nothing: default of ``notify``, for use when the other process reads the file again every few milliseconds."""


class JsonLinesTail:
    """Reader of complete JSON lines from a file that another process appends to.

    :param path: the file; it may appear later, and reads as empty until then
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the JSON documents of all lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(complete) + len(newline)
        return [json.loads(line) for line in complete.splitlines()]


class DriverSide:
    """The Spark driver's operations on the run directory: read the job and the waves, and append replies.

    The lease holder, the process that plans the waves, reads the replies.

    :param directory: path of the run directory
    :param wait: called before the file of waves is read again; waits for a moment, or until there may be a new wave,
        and returns False if the lease holder is gone
    :param notify: called after each reply, to wake the lease holder
    :ivar directory: path of the run directory
    """

    def __init__(
        self,
        directory: str,
        *,
        wait: Callable[[], bool] = _sleep,
        notify: Callable[[], None] = _no_notification,
    ) -> None:
        self.directory = Path(directory)
        self._waves = JsonLinesTail(self.directory / _WAVES)
        self._wait = wait
        self._notify = notify

    def job(self) -> Job:
        """Read ``job.json`` and delete it, then return the job. The file with Spark's properties is deleted, too.

        Both files contain secrets, so they are deleted before the job is parsed.

        :raises FileNotFoundError: if the job was read before
        """
        (self.directory / PROPERTIES).unlink(missing_ok=True)
        path = self.directory / _JOB
        text = path.read_text()
        path.unlink()
        return Job.from_json(json.loads(text))

    def waves(self) -> Iterator[Wave]:
        """Yield each wave that the lease holder appends to the file of waves, until it ends the run or is gone."""
        while True:
            for line in self._waves.read():
                if line.get("stop"):
                    return
                yield Wave.from_json(line)
            if not self._wait():
                return

    def ready(
        self,
        parallelism: int,
        columns: Sequence[tuple[str, str]],
        *,
        ui: str | None = None,
        application: str | None = None,
    ) -> None:
        """Tell the lease holder, the process that plans the waves, that Spark has started and the transform is valid.

        :param parallelism: number of tasks that Spark runs at once, up to which the run may use lanes
        :param columns: name and Spark SQL type of each output column of the transform
        :param ui: address of Spark's web UI, which exists while the application runs; None if there is none
        :param application: id under which a history server will show the application; None if no event log is written
        """
        self._reply({"ready": parallelism, "columns": list(columns), "ui": ui, "application": application})

    def finished(self, number: int, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Send the outcomes of a wave to the lease holder, the process that plans the waves.

        :param number: number of the wave in its run, from 1
        :param outcomes: one outcome for each batch of the wave
        :param seconds: wall time of the wave
        """
        self._reply({"wave": number, "outcomes": [outcome.to_json() for outcome in outcomes], "seconds": seconds})

    def failed(self, number: int, error: ErrorInfo, *, final: bool) -> None:
        """Tell the lease holder, the process that plans the waves, that a wave ended without outcomes.

        :param number: number of the wave in its run, from 1; 0 for an error before the first wave
        :param error: the error that ended the wave
        :param final: whether a retry of the wave cannot help
        """
        self._reply({"wave": number, "error": error.to_json(), "final": final})

    def _reply(self, line: dict[str, Any]) -> None:
        _append(self.directory / _REPLIES, line)
        self._notify()


class LeaseHolderSide:
    """Operations of the lease holder, the process that plans the waves: write the job, append waves, and read replies.

    :param directory: path of the run directory
    :param notify: called after each wave, to wake the driver
    """

    def __init__(self, directory: Path, *, notify: Callable[[], None] = _no_notification) -> None:
        self._directory = directory
        self._notify = notify
        self._replies = JsonLinesTail(directory / _REPLIES)

    def write_job(self, job: Job) -> None:
        """Write ``job.json``, the description of the run for the driver, with mode 0600.

        :param job: description of the run
        """
        with private_files.create(self._directory / _JOB) as file:
            file.write(json.dumps(job.to_json()).encode())

    def delete_job(self) -> None:
        """Delete ``job.json``, for the case that the driver ended before it read and deleted the file."""
        (self._directory / _JOB).unlink(missing_ok=True)

    def send(self, wave: Wave) -> None:
        """Send a wave to the driver, by appending it to the file of waves.

        :param wave: the wave
        """
        _append(self._directory / _WAVES, wave.to_json())
        self._notify()

    def stop(self) -> None:
        """Append a last line to the file of waves, by which the driver learns that the run has ended."""
        _append(self._directory / _WAVES, {"stop": True})

    def replies(self) -> list[dict[str, Any]]:
        """Return the driver's replies since the last call, as the JSON objects that :class:`DriverSide` wrote."""
        return self._replies.read()


def _append(path: Path, line: dict[str, Any]) -> None:
    with private_files.append(path) as file:
        file.write(json.dumps(line).encode() + b"\n")
