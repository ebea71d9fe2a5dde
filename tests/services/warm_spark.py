"""Standing drivers in a runtime directory for tests, and functions that find what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers
from tests.services.processes import in_session

_TRAINING = "airflow_provider_ckpt.engines.class_archive_training"


class WarmSpark:
    """The standing drivers that runs in an environment find.

    :param runtime: stands for ``XDG_RUNTIME_DIR``
    """

    def __init__(self, runtime: Path) -> None:
        runtime.mkdir(mode=0o700, exist_ok=True)
        self.directory = runtime / "ckpt-spark"
        self.environment = {"XDG_RUNTIME_DIR": str(runtime), "AIRFLOW__CKPT__WARM_SPARK": "True"}

    def __enter__(self) -> Self:
        """Return this; the block's end stops all drivers."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all drivers."""
        self.stop()

    @contextmanager
    def found(self, more: Mapping[str, str] | None = None) -> Iterator[None]:
        """In the block, runs of this process look for drivers here.

        :param more: further environment variables
        """
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.environment, **(more or {})}.items():
                patch.setenv(name, value)
            yield

    def states(self) -> list[dict[str, Any]]:
        """Return the state that each driver reports."""
        if not self.directory.exists():
            return []
        with self.found(), StandingDrivers(create=False) as drivers:
            return [state.reported for state in drivers.states() if state.reported is not None]

    def state(self) -> dict[str, Any]:
        """Return the state that the only driver reports."""
        (found,) = self.states()
        return found

    def stop(self) -> None:
        """Stop all drivers at once."""
        if self.directory.exists():
            with self.found(), StandingDrivers(create=False) as drivers:
                drivers.stop(at_once=True)

    def processes(self) -> list[int]:
        """All processes of the drivers: Java, its Python, the daemon and the workers."""
        return [pid for told in self.states() for pid in session_of(told["pid"])]

    def kill(self) -> None:
        """End all processes of the drivers at once."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def train_class_archive(directory: Path) -> float:
    """Make the archive of Spark's classes that the runs find, and return the seconds that it took.

    :param directory: the archives' directory, in one that no run uses
    """
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", f"from {_TRAINING} import create_archive; create_archive()"],
        env={
            **os.environ,
            "AIRFLOW__CKPT__SPARK_HEAD_START_DIRECTORY": str(directory),
            "TMPDIR": str(directory.parent),  # it waits for the end of runs whose directories are beside its own
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return round(time.monotonic() - started, 3)


def session_of(pid: int) -> list[int]:
    """The living processes of the session to which a process belongs."""
    return in_session(os.getsid(pid))


def living(pids: list[int]) -> list[int]:
    """Those that still live, after some seconds if need be."""
    deadline = time.monotonic() + 15
    while left := [pid for pid in pids if _all().get(pid, "X") not in "ZX"]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def _all() -> dict[int, str]:
    """The state of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()[0]
    return found
