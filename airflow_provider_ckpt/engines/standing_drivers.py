"""Find the standing drivers of this user, start one, ask them for their state, and stop them.

A standing driver is a Spark application that stays on the machine between runs. Each driver has a directory in the
runtime directory, with its socket and its output; the directory's name begins with the driver's key.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines import exit_reason
from airflow_provider_ckpt.engines.runtime_directory import open_runtime_directory
from airflow_provider_ckpt.replication.owner import is_dead, of_process
from airflow_provider_ckpt.spark.driver import standing_protocol
from airflow_provider_ckpt.spark.driver.standing_protocol import DRAINING, LOCK, LOG, SOCKET, short_path

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_PAUSE = 0.05
_START_SECONDS = 90.0
"""Seconds that a driver may take to start, on a busy machine; as long, a run waits for others' starts."""

_FAILED_SECONDS = 300.0
"""Seconds after a failed start before a driver of the same key is started again."""

_ANSWER_SECONDS = 3.0
_STOP_SECONDS = 15.0
_LOG_LINES = 200
_OWNER = "owner"
"""File in a driver's directory that names its process."""


@dataclass(frozen=True)
class DriverState:
    """State of one standing driver.

    :param key: the driver's key
    :param told: status that the driver reports itself; None if the driver does not answer in time
    """

    key: str
    told: dict[str, Any] | None


class StandingDrivers:
    """The standing drivers of this user on this machine.

    :param create: create the runtime directory if there is none
    :raises OSError: if the runtime directory cannot be used; a ``FileNotFoundError`` if there is none
    """

    def __init__(self, *, create: bool) -> None:
        self._path, self._descriptor = open_runtime_directory(create=create)

    def __enter__(self) -> StandingDrivers:
        """Return the drivers; the end of the block closes the directory."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the directory."""
        os.close(self._descriptor)

    def connect(self, key: str) -> socket.socket | None:
        """Return a connection to a driver of this key that accepts runs; None if there is no such driver."""
        found = (self._connect(f"{home}/{SOCKET}") for home in self._homes() if _key(home) == key)
        return next(filter(None, found), None)

    def connect_or_start(
        self, key: str, pipeline: Pipeline, *, idle: float, limit: int, stopped: threading.Event
    ) -> socket.socket:
        """Return a connection to a driver of this key; start a driver if there is none, only once if several runs ask
        for it.

        :param key: the key
        :param pipeline: the pipeline whose run needs the driver
        :param idle: seconds without runs after which the driver ends
        :param limit: maximum number of drivers of this user; one without runs makes room for another
        :param stopped: ends the wait
        :raises EngineError: if no driver can be started
        """
        failed = self._path / f"{key}.failed"
        with self._starting(stopped):
            found = self.connect(key)
            if found is not None:
                return found
            with suppress(FileNotFoundError):
                if time.time() - failed.stat().st_mtime < _FAILED_SECONDS:
                    raise EngineError("a start failed some minutes ago")
            self._make_room(limit)
            try:
                found = self._start(key, pipeline, idle, stopped)
            except (EngineError, OSError):
                if not stopped.is_set():
                    private_files.append(failed).close()
                    os.utime(failed)
                raise
            failed.unlink(missing_ok=True)
            return found

    def states(self) -> list[DriverState]:
        """Return the state of every driver that runs."""
        return [DriverState(_key(home), self._ask(home, {"status": True})) for home in self._living()]

    def stop(self, *, at_once: bool) -> list[DriverState]:
        """Ask every driver to end, and return the states that the drivers had before.

        :param at_once: whether drivers end without waiting for their runs; each run then starts a Spark of its own and
            continues
        """
        before = []
        for home in self._living():
            before.append(DriverState(_key(home), self._ask(home, {"status": True})))
            told = self._ask(home, {"stop": "now" if at_once else "after runs"})
            if at_once or (told is not None and not told["runs"]):
                self._await_end(home)
        return before

    def last_error(self, key: str) -> str:
        """Return the last error that the newest driver of a key has printed; empty if there is none."""
        found = (self._last_error(home) for home in self._homes() if _key(home) == key)
        return next(found, "")

    @contextmanager
    def _starting(self, stopped: threading.Event) -> Iterator[None]:
        """Hold the lock under which drivers are started.

        :raises EngineError: if the wait was ended, or took too long
        """
        deadline = time.monotonic() + _START_SECONDS
        with private_files.append(self._path / "start.lock") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if stopped.wait(_PAUSE) or time.monotonic() > deadline:
                        raise EngineError("the start of other drivers takes too long") from None
            yield

    def _start(self, key: str, pipeline: Pipeline, idle: float, stopped: threading.Event) -> socket.socket:
        """Start a driver and wait until it accepts runs.

        :raises EngineError: if it ends before, or takes too long
        """
        from airflow_provider_ckpt.engines.standing_launcher import StandingLauncher

        home = f"{key}-{secrets.token_hex(4)}"
        path = self._path / home
        private_files.make_directory(path)
        try:
            launcher = StandingLauncher(pipeline, path, idle)
            owner = of_process(launcher.start())
            with private_files.create(path / _OWNER) as file:
                file.write(owner.encode())
            deadline = time.monotonic() + _START_SECONDS
            while (connection := self._connect(f"{home}/{SOCKET}")) is None:
                if _is_gone(owner):
                    raise EngineError(f"it ended: {self._last_error(home) or 'it printed no error'}")
                if stopped.wait(_PAUSE) or time.monotonic() > deadline:
                    raise EngineError(f"it did not accept a run within {_START_SECONDS:g} s")
        except BaseException:
            if not stopped.is_set():  # a driver whose first run was killed comes up for the next one
                self._await_end(home, seconds=0)
            raise
        launcher.prepare_next_start()
        return connection

    def _make_room(self, limit: int) -> None:
        """Remove dead drivers' directories; if ``limit`` drivers run, stop the one that has waited longest for a run.

        :raises EngineError: if all drivers have runs
        """
        living = self._living()
        for home in set(self._homes()) - set(living):
            shutil.rmtree(self._path / home, ignore_errors=True)
        if len(living) < limit:
            return
        states = {home: self._ask(home, {"status": True}) for home in living}
        waiting = {home: told["idle_seconds"] for home, told in states.items() if told and not told["runs"]}
        for home in sorted(waiting, key=lambda home: -waiting[home])[: len(living) - limit + 1]:
            told = self._ask(home, {"stop": "after runs"})
            if told is not None and not told["runs"]:
                self._await_end(home)
                living.remove(home)
        if len(living) >= limit:
            raise EngineError(f"{len(living)} standing drivers have runs, and [ckpt] warm_spark_servers is {limit}")

    def _homes(self) -> list[str]:
        """Return the names of the drivers' directories, the newest first."""
        with os.scandir(self._descriptor) as entries:
            found = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            return [entry.name for entry in sorted(found, key=lambda entry: -entry.stat().st_mtime)]

    def _living(self) -> list[str]:
        """Return the directory names of drivers that run; a driver in another container is recognised by its lock."""
        homes = self._homes()
        return [home for home in homes if not _is_gone(self._owner(home)) or _is_locked(self._path / home / LOCK)]

    def _owner(self, home: str) -> str:
        """Return the owner name of a driver's process; empty if its starter died before the driver had a process."""
        with suppress(OSError):
            return (self._path / home / _OWNER).read_text()
        return ""

    def _connect(self, name: str) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with suppress(OSError):  # no such file, or the driver that made it has ended
            connection.connect(short_path(self._descriptor, name))
            pid, _ = standing_protocol.peer(connection)
            if pid and standing_protocol.is_same_user(connection):  # no pid: it is in another container
                return connection
        connection.close()
        return None

    def _ask(self, home: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request to a driver and return its answer; None if the driver does not answer in time."""
        connection = self._connect(f"{home}/{SOCKET}") or self._connect(f"{home}/{DRAINING}")
        if connection is None:
            return None
        with connection, suppress(OSError, ValueError):
            connection.settimeout(_ANSWER_SECONDS)
            standing_protocol.send_line(connection, request)
            return standing_protocol.read_line(connection)
        return None

    def _await_end(self, home: str, *, seconds: float = _STOP_SECONDS) -> None:
        """Wait until all processes of a driver have ended, kill those that do not, and remove its directory.

        :param seconds: time that they get
        """
        with suppress(ProcessLookupError, IndexError):
            session = os.getsid(int(self._owner(home).split(":")[-2]))
            deadline = time.monotonic() + seconds
            while left := _processes(session):
                if time.monotonic() > deadline:
                    for process in left:
                        with suppress(ProcessLookupError):
                            os.kill(process, signal.SIGKILL)
                time.sleep(_PAUSE)
        shutil.rmtree(self._path / home, ignore_errors=True)

    def _last_error(self, home: str) -> str:
        """Return the last error in a driver's output; empty if there is none."""
        with suppress(OSError):
            lines = (self._path / home / LOG).read_text(errors="replace").splitlines()[-_LOG_LINES:]
            return exit_reason.last_error(lines) or ""
        return ""


def _is_gone(owner: str) -> bool:
    """Return whether a driver's process has ended.

    :param owner: the owner name of the process; without start time if the process ended at once
    """
    return not owner or owner.endswith(":") or is_dead(owner)


def _key(home: str) -> str:
    """Return the driver's key, with which the name of its directory begins."""
    return home.partition("-")[0]


def _processes(session: int) -> list[int]:
    """Return the living processes of a session, which is not this process's own."""
    found: list[int] = []
    for entry in Path("/proc").iterdir() if session not in (0, os.getsid(0)) else ():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def _is_locked(path: Path) -> bool:
    """Return whether another process holds the lock of a file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
