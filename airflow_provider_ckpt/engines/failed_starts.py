"""Keep the output of standing drivers that failed to start, and delay further starts with the same key."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import EngineError

DELAY_SECONDS = 300.0
"""Seconds after a failed start in which no driver with the same key is started."""

_REPORTED_SECONDS = 86400.0
"""Age of a failed start's record in seconds above which the next start of any driver deletes the record."""

_SUFFIX = ".failed.log"
"""Suffix of the file with the output of a driver that did not start; the file's name begins with the driver's key."""


@dataclass(frozen=True)
class FailedStart:
    """The last failed start of a standing driver with a certain key (see ``driver_key.py``).

    :param key: key of the driver
    :param time: time at which the start failed
    :param log: path of the file with the driver's output
    :param reason: error message
    """

    key: str
    time: datetime
    log: Path
    reason: str


class FailedStarts:
    """Failed starts of this user's standing drivers, each stored as a file in the runtime directory.

    :param directory: the runtime directory
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def all(self) -> list[FailedStart]:
        """Return the failed starts on record. A record is deleted when a driver with the same key starts.

        Records older than a day may be deleted too, see :meth:`check`.
        """
        found = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            with suppress(FileNotFoundError):  # a driver of this key has been started meanwhile
                ended = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                lines = path.read_text(errors="replace").splitlines()
                found.append(FailedStart(path.name.removesuffix(_SUFFIX), ended, path, lines[-1] if lines else ""))
        return found

    def check(self, key: str) -> None:
        """Raise an error if a driver with the given key failed to start in the last five minutes.

        Records of failures older than a day are deleted.

        :param key: key of the driver
        :raises EngineError: if there is such a failure; the error names the file with the driver's output
        """
        now = datetime.now(UTC)
        for failure in self.all():
            age = (now - failure.time).total_seconds()
            if age > _REPORTED_SECONDS:
                failure.log.unlink(missing_ok=True)
            elif failure.key == key and 0 <= age < DELAY_SECONDS:
                raise EngineError(
                    f"a driver with these Spark properties failed to start {age:.0f} s ago, see {failure.log}"
                )

    def record(self, key: str, output: Path, error: Exception) -> None:
        """Keep the output of a driver that did not start, with the error message as its last line.

        :param key: key of the driver
        :param output: file with the driver's output, which is moved
        :param error: the error
        """
        message = error.message if isinstance(error, EngineError) else repr(error)
        log = self._log(key)
        with suppress(OSError):
            with suppress(FileNotFoundError):
                output.replace(log)
            with private_files.append(log) as file:
                file.write(f"{' '.join(message.split())}\n".encode())

    def forget(self, key: str) -> None:
        """Delete the record of a failed start, since a driver with the same key has started."""
        self._log(key).unlink(missing_ok=True)

    def _log(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"
