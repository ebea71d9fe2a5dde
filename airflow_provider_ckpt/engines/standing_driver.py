"""Find out the state of a standing driver, send it requests over its socket, and await the end of its processes.

A standing driver is a Spark application that stays on the machine between runs. Each has a directory with its socket
and its output below the runtime directory (``runtime_directory.py``); the directory's name begins with the driver's
key, a digest that tells which runs it can serve (``driver_key.py``).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.engines import exit_reason
from airflow_provider_ckpt.replication.process_lease_owner import of_process
from airflow_provider_ckpt.spark.driver import standing_protocol
from airflow_provider_ckpt.spark.driver.standing_protocol import DRAINING, LOCK, LOG, SOCKET, STARTING, short_path

STOP_SECONDS = 15.0
"""Seconds that the processes of a driver may take to end before they are killed."""

_PAUSE = 0.05
_ANSWER_SECONDS = 3.0
_KILL_SECONDS = 5.0
_LOG_LINES = 200
_OWNER = "owner"
"""Name of a file in a driver's directory that identifies the driver's first process by host, pid and start time."""


class StandingDriver:
    """A standing driver, running or ended, found by its directory. Creating the object changes nothing.

    :param runtime: path of the runtime directory
    :param descriptor: open file descriptor of the runtime directory
    :param name: name of the driver's directory below the runtime directory
    :ivar home: path of the driver's directory
    """

    def __init__(self, runtime: Path, descriptor: int, name: str) -> None:
        self.home = runtime / name
        self._descriptor = descriptor

    @property
    def key(self) -> str:
        """The driver's key (see ``driver_key.py``), with which the name of its directory begins."""
        return self.home.name.partition("-")[0]

    @property
    def output(self) -> Path:
        """File with the output of the driver."""
        return self.home / LOG

    def create_directory(self) -> None:
        """Create the driver's directory, with a file which shows that the driver does not accept runs yet."""
        private_files.make_directory(self.home)
        private_files.create(self.home / STARTING).close()

    def record_process(self, pid: int) -> None:
        """Store host, pid and start time of the driver's first process in the driver's directory.

        :param pid: pid of the process
        """
        with private_files.create(self.home / _OWNER) as file:
            file.write(of_process(pid).encode())

    def remove_directory(self) -> None:
        """Delete the directory of a driver that has ended."""
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def is_living(self) -> bool:
        """True if the driver's first process lives, or if the driver's lock file is locked.

        A living driver holds that lock, which is visible from other containers too; the process is not.
        """
        return _pid(self._owner()) is not None or _is_locked(self.home / LOCK)

    @property
    def is_starting(self) -> bool:
        """True if the driver lives but does not accept runs yet."""
        return (self.home / STARTING).exists() and self.is_living

    def is_ending(self) -> bool:
        """Return whether the driver accepted connections before but no longer does.

        Such a driver is about to end, or has ended.
        """
        if self.is_starting:
            return False
        for name in (SOCKET, DRAINING):  # in this order, since the driver renames the first to the second
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(_ANSWER_SECONDS)
                try:
                    probe.connect(short_path(self._descriptor, f"{self.home.name}/{name}"))
                except (ConnectionRefusedError, FileNotFoundError):
                    continue
                except OSError:
                    pass
            return False
        return True

    def session(self) -> int | None:
        """Return the session id of the driver's processes; None if the driver's first process has ended.

        Another process may get the pid after that process has ended, so its start time is compared too.
        """
        owner = self._owner()
        pid = _pid(owner)
        if pid is None:
            return None
        try:
            session = os.getsid(pid)
        except ProcessLookupError:
            return None
        return session if _pid(owner) is not None and session not in (0, os.getsid(0)) else None

    def connect(self) -> socket.socket | None:
        """Return a socket connection to the driver; None if it does not accept runs, or is in another container."""
        return self._connect_to(SOCKET)

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request to the driver and return its answer; None if the driver does not answer in time.

        :param request: the request, as ``standing_protocol.py`` describes it
        """
        connection = self._connect_to(SOCKET) or self._connect_to(DRAINING)
        if connection is None:
            return None
        with connection, suppress(OSError, ValueError):
            connection.settimeout(_ANSWER_SECONDS)
            standing_protocol.send_line(connection, request)
            return standing_protocol.read_line(connection)
        return None

    def await_end(self, session: int | None, *, seconds: float | None = None) -> None:
        """Wait until the driver's processes have ended, kill those that remain after a time, and delete its directory.

        :param session: result of :meth:`session`, called before the driver was asked to end; None if the driver's first
            process had ended
        :param seconds: time after which processes are killed; :data:`STOP_SECONDS` if None
        """
        deadline = time.monotonic() + (STOP_SECONDS if seconds is None else seconds)
        while session is not None and (left := _processes(session)) and time.monotonic() < deadline + _KILL_SECONDS:
            if time.monotonic() > deadline:
                for process in left:
                    _kill(process, session)
            time.sleep(_PAUSE)
        self.remove_directory()

    def last_error(self) -> str:
        """Return the last error in the driver's output; empty if there is none."""
        with suppress(OSError):
            lines = self.output.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            return exit_reason.last_error(lines) or ""
        return ""

    def _owner(self) -> str:
        """Return host, pid and start time of the driver's first process; empty if they were never recorded."""
        with suppress(OSError):
            return (self.home / _OWNER).read_text()
        return ""

    def _connect_to(self, name: str) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ANSWER_SECONDS)
        with suppress(OSError):  # no such file, or the driver that made it has ended
            connection.connect(short_path(self._descriptor, f"{self.home.name}/{name}"))
            pid, _ = standing_protocol.peer(connection)
            if pid and standing_protocol.is_same_user(connection):  # without a pid, the driver is in another container
                return connection
        connection.close()
        return None


def _pid(owner: str) -> int | None:
    """Return the pid of a driver's first process; None if the process has ended, or ran on another host.

    :param owner: name of the process (host, pid and start time); the start time is empty if the process ended at once
    """
    pid, _, started = owner.partition(":")[2].partition(":")[2].partition(":")
    return int(pid) if pid.isdecimal() and started and of_process(int(pid)) == owner else None


def _processes(session: int) -> list[int]:
    """Return the pids of the living processes of a POSIX session, which the pid of its first process identifies."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def _kill(pid: int, session: int) -> None:
    """Kill a process, unless it has ended and its pid now belongs to a process of another session.

    :param pid: pid of the process
    :param session: id of the POSIX session to which the process belongs
    """
    with suppress(ProcessLookupError):
        if os.getsid(pid) == session:
            os.kill(pid, signal.SIGKILL)


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
