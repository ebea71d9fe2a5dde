"""Find the standing drivers of this user, start one, ask them for their state, and stop them.

A standing driver is a Spark application that stays on the machine between runs. Each has a directory with its socket
and its output below the runtime directory (``runtime_directory.py``); the directory's name begins with the driver's
key, a digest that tells which runs it can serve (``driver_key.py``). In this module, ``home`` is the name of such a
directory.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines import exit_reason
from airflow_provider_ckpt.engines.runtime_directory import open_runtime_directory
from airflow_provider_ckpt.replication.owner import of_process
from airflow_provider_ckpt.spark.driver import standing_protocol
from airflow_provider_ckpt.spark.driver.standing_protocol import DRAINING, LOCK, LOG, SOCKET, STARTING, short_path

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_PAUSE = 0.05
_START_SECONDS = 90.0
"""Seconds that a driver may take to start on a busy machine. A run waits equally long while other drivers are
started.
"""

_FAILED_SECONDS = 300.0
"""Seconds after a failed start in which no driver with the same key is started."""

_FAILURE_SHOWN_SECONDS = 86400.0
"""Seconds for which a failed start is reported, unless a driver with the same key starts successfully before."""

_FAILED = ".failed.log"
"""Suffix of the file with the output of a driver that did not start; the file's name begins with the driver's key."""

_ANSWER_SECONDS = 3.0
_STOP_SECONDS = 15.0
_KILL_SECONDS = 5.0
_LOG_LINES = 200
_OWNER = "owner"
"""Name of a file in a driver's directory that identifies the driver's first process by host, pid and start time."""


@dataclass(frozen=True)
class DriverState:
    """State of one standing driver.

    :param key: key of the driver
    :param told: status that the driver itself reports; None if it does not answer in time
    """

    key: str
    told: dict[str, Any] | None


@dataclass(frozen=True)
class FailedStart:
    """Failed start of a standing driver, the last one for its key.

    :param key: key of the driver
    :param time: time at which the start failed
    :param log: path of the file with the driver's output
    :param reason: error message
    """

    key: str
    time: datetime
    log: Path
    reason: str


class StandingDrivers:
    """All standing drivers of this user on this machine, as a context manager that opens the runtime directory.

    :param create: whether to create the runtime directory if it does not exist
    :raises OSError: if the runtime directory cannot be used; a ``FileNotFoundError`` if it does not exist
    """

    def __init__(self, *, create: bool) -> None:
        self._path, self._descriptor = open_runtime_directory(create=create)

    def __enter__(self) -> StandingDrivers:
        """Return this object, whose file descriptor of the runtime directory is open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file descriptor of the runtime directory; the drivers go on."""
        os.close(self._descriptor)

    def connect(self, key: str) -> socket.socket | None:
        """Return a socket connection to a driver with a key that accepts runs; None if there is no such driver."""
        found = (self._connect(f"{home}/{SOCKET}") for home in self._homes() if _key(home) == key)
        return next(filter(None, found), None)

    def connect_or_start(
        self,
        find_key: Callable[[], str],
        pipeline: Pipeline,
        *,
        idle: float,
        limit: int,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> socket.socket:
        """Return a socket connection to a driver with the current key; start one if there is none.

        If several runs call this at the same time, one of them starts the driver, and the others wait for it.

        :param find_key: function that returns the current key; an upgrade may change the key during the wait or the
            start
        :param pipeline: declaration of the pipeline whose run needs the driver
        :param idle: seconds without runs after which a new driver ends
        :param limit: maximum number of drivers of this user; one without runs is stopped to make room for another
        :param is_stopped: function that returns whether to end the wait, because the run was killed
        :raises EngineError: if no driver can be started
        """
        with self._starting(is_stopped):
            key = find_key()
            found = self.connect(key)
            if found is not None:
                return found
            self._check_failures(key)
            home = self._starting_home(key)
            if home is None:
                self._make_room(limit)
            return self._start(home, key, find_key, pipeline, idle, is_stopped)

    def states(self) -> list[DriverState]:
        """Return the state of every driver that lives."""
        return [DriverState(_key(home), self._ask(home, {"status": True})) for home in self._living()]

    def failed_starts(self) -> list[FailedStart]:
        """Return the failed starts of the last 24 hours whose key has had no successful start since."""
        found = []
        for path in sorted(self._path.glob(f"*{_FAILED}")):
            with suppress(FileNotFoundError):  # a driver of this key has been started meanwhile
                ended = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                lines = path.read_text(errors="replace").splitlines()
                found.append(FailedStart(path.name.removesuffix(_FAILED), ended, path, lines[-1] if lines else ""))
        return found

    def stop(self, *, at_once: bool) -> list[DriverState]:
        """Ask every driver to end, and return the states that the drivers had before.

        If a start is in progress, wait for its end first, so that its driver does not remain.

        :param at_once: whether drivers end without waiting for their runs to end; each of these runs then starts a
            Spark of its own and continues
        :raises EngineError: if a start in progress takes too long
        """
        before = []
        with self._starting(lambda: False):
            for home in self._living():
                session = self._session(home)
                if session is not None and self._is_starting(home):  # for a run that was killed
                    before.append(DriverState(_key(home), None))
                    self._await_end(home, session, seconds=0)
                    continue
                before.append(DriverState(_key(home), self._ask(home, {"status": True})))
                told = self._ask(home, {"stop": "now" if at_once else "after runs"})
                if at_once or (not told["runs"] if told is not None else self._is_ending(home)):
                    self._await_end(home, session)
        return before

    def last_error(self, key: str) -> str:
        """Return the last error in the output of the newest driver with a key; empty if there is no driver or
        no error.
        """
        found = (self._last_error(home) for home in self._homes() if _key(home) == key)
        return next(found, "")

    @contextmanager
    def _starting(self, is_stopped: Callable[[], bool]) -> Iterator[None]:
        """Hold, inside the ``with`` block, the lock under which drivers are started and stopped.

        The runtime directory itself is locked: a lock file in it could be removed and created anew while it is locked.

        :param is_stopped: function that returns whether to end the wait for the lock, because the run was killed
        :raises EngineError: if the wait was ended, or took too long
        :raises OSError: if the runtime directory has been removed meanwhile
        """
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if is_stopped() or time.monotonic() > deadline:
                    raise EngineError(
                        f"other standing drivers were still starting after {_START_SECONDS:g} s"
                    ) from None
                time.sleep(_PAUSE)
        try:
            if not os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                raise FileNotFoundError(f"{self._path} was removed and created anew")
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _start(
        self,
        home: str | None,
        key: str,
        find_key: Callable[[], str],
        pipeline: Pipeline,
        idle: float,
        is_stopped: Callable[[], bool],
    ) -> socket.socket:
        """Start a driver, wait until it accepts runs, and return a connection to it; record the failure if it does not.

        :param home: directory name of a driver whose start another run has begun; None to start a new one
        :param key: key of the driver
        :param find_key: function that returns the current key, to detect that it changed during the start
        :param pipeline: declaration of the pipeline whose run needs the driver
        :param idle: seconds without runs after which the driver ends
        :param is_stopped: function that returns whether to end the wait, because the run was killed
        :raises EngineError: if the driver ends before it accepts runs or takes too long, or if the key changed
        """
        from airflow_provider_ckpt.engines.standing_launcher import StandingLauncher

        launcher = None
        new = home or f"{key}-{secrets.token_hex(4)}"
        try:
            if home is None:
                private_files.make_directory(self._path / new)
                private_files.create(self._path / new / STARTING).close()
                launcher = StandingLauncher(pipeline, self._path / new, idle)
                owner = of_process(launcher.start())
                with private_files.create(self._path / new / _OWNER) as file:
                    file.write(owner.encode())
            connection = self._await_start(new, is_stopped)
            if find_key() != key:
                connection.close()
                raise EngineError("the installed packages or the environment changed while it started")
        except BaseException as error:
            if not is_stopped():  # a driver whose first run was killed comes up for the next one
                if isinstance(error, Exception):
                    self._record_failure(key, new, error)
                self._await_end(new, self._session(new), seconds=0)
            raise
        self._failure_log(key).unlink(missing_ok=True)
        if launcher is not None:
            launcher.prepare_next_start()
        return connection

    def _await_start(self, home: str, is_stopped: Callable[[], bool]) -> socket.socket:
        """Wait until a driver accepts runs, and return a connection to it.

        :param home: directory name of the driver
        :param is_stopped: function that returns whether to end the wait, because the run was killed
        :raises EngineError: if the driver ends before, or takes too long
        """
        deadline = time.monotonic() + _START_SECONDS
        while (connection := self._connect(f"{home}/{SOCKET}")) is None:
            if not self._is_living(home):
                raise EngineError(
                    f"the standing driver ended while it started: {self._last_error(home) or 'it printed no error'}"
                )
            if is_stopped() or time.monotonic() > deadline:
                raise EngineError(f"the standing driver did not accept a run within {_START_SECONDS:g} s")
            time.sleep(_PAUSE)
        return connection

    def _check_failures(self, key: str) -> None:
        """Raise an error if a driver with a key failed to start in the last five minutes; forget failures older than a
        day.

        :raises EngineError: if a driver with this key failed to start
        """
        now = datetime.now(UTC)
        for failure in self.failed_starts():
            age = (now - failure.time).total_seconds()
            if age > _FAILURE_SHOWN_SECONDS:
                failure.log.unlink(missing_ok=True)
            elif failure.key == key and 0 <= age < _FAILED_SECONDS:
                raise EngineError(
                    f"a driver with these Spark properties failed to start {age:.0f} s ago, see {failure.log}"
                )

    def _record_failure(self, key: str, home: str, error: Exception) -> None:
        """Keep the output of a driver that did not start, with the error message as its last line.

        :param key: key of the driver
        :param home: directory name of the driver
        :param error: the error
        """
        message = error.message if isinstance(error, EngineError) else repr(error)
        log = self._failure_log(key)
        with suppress(OSError):
            with suppress(FileNotFoundError):
                (self._path / home / LOG).replace(log)
            with private_files.append(log) as file:
                file.write(f"{' '.join(message.split())}\n".encode())

    def _failure_log(self, key: str) -> Path:
        return self._path / f"{key}{_FAILED}"

    def _make_room(self, limit: int) -> None:
        """Remove the directories of dead drivers; if too many drivers live, stop the one that has been without runs for
        longest.

        :param limit: number of drivers of this user below which another may be started
        :raises EngineError: if all drivers serve runs
        """
        homes = self._homes()
        living = [home for home in homes if self._is_living(home)]
        for home in set(homes) - set(living):
            shutil.rmtree(self._path / home, ignore_errors=True)
        if len(living) < limit:
            return
        sessions = {home: self._session(home) for home in living}
        states = {home: self._ask(home, {"status": True}) for home in living}
        ending = [home for home, told in states.items() if told is None and self._is_ending(home)]
        waiting = {home: told["idle_seconds"] for home, told in states.items() if told and not told["runs"]}
        for home in (*ending, *sorted(waiting, key=lambda home: -waiting[home])):
            if len(living) < limit:
                break
            told = {"runs": 0} if home in ending else self._ask(home, {"stop": "if idle"})
            if told is not None and not told["runs"]:
                self._await_end(home, sessions[home])
                living.remove(home)
        if len(living) >= limit:
            raise EngineError(
                f"{len(living)} standing drivers are busy with runs, and [ckpt] warm_spark_servers allows {limit}"
            )

    def _homes(self) -> list[str]:
        """Return the names of the drivers' directories below the runtime directory, the newest first."""
        found = []
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a driver removes its directory when it ends
                    if entry.is_dir(follow_symlinks=False):
                        found.append((-entry.stat(follow_symlinks=False).st_mtime, entry.name))
        return [name for _, name in sorted(found)]

    def _living(self) -> list[str]:
        """Return the directory names of the drivers that live."""
        return [home for home in self._homes() if self._is_living(home)]

    def _is_living(self, home: str) -> bool:
        """Return whether a driver lives, as its first process or its lock shows; only the lock shows it across
        containers.
        """
        return _pid(self._owner(home)) is not None or _is_locked(self._path / home / LOCK)

    def _is_starting(self, home: str) -> bool:
        """Return whether a driver lives but does not accept runs yet."""
        return (self._path / home / STARTING).exists() and self._is_living(home)

    def _starting_home(self, key: str) -> str | None:
        """Return the directory name of a driver with a key whose start has begun; None if there is none.

        The caller holds the lock for starting. So the run that began the start no longer does: it was killed.
        """
        return next((home for home in self._homes() if _key(home) == key and self._is_starting(home)), None)

    def _is_ending(self, home: str) -> bool:
        """Return whether a driver that had accepted connections no longer does, since it is about to end."""
        if self._is_starting(home):
            return False
        for name in (SOCKET, DRAINING):  # in this order, since the first is renamed to the second
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(_ANSWER_SECONDS)
                try:
                    probe.connect(short_path(self._descriptor, f"{home}/{name}"))
                except (ConnectionRefusedError, FileNotFoundError):
                    continue
                except OSError:
                    pass
            return False
        return True

    def _session(self, home: str) -> int | None:
        """Return the session id of a driver's processes; None if the driver's first process has ended.

        An id is returned only if that process is certainly the driver's, since another process may get its pid after
        its end.
        """
        owner = self._owner(home)
        pid = _pid(owner)
        if pid is None:
            return None
        try:
            session = os.getsid(pid)
        except ProcessLookupError:
            return None
        return session if _pid(owner) is not None and session not in (0, os.getsid(0)) else None

    def _owner(self, home: str) -> str:
        """Return the name of a driver's first process (host, pid and start time); empty if that process was never
        recorded.
        """
        with suppress(OSError):
            return (self._path / home / _OWNER).read_text()
        return ""

    def _connect(self, name: str) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ANSWER_SECONDS)
        with suppress(OSError):  # no such file, or the driver that made it has ended
            connection.connect(short_path(self._descriptor, name))
            pid, _ = standing_protocol.peer(connection)
            if pid and standing_protocol.is_same_user(connection):  # no pid: it is in another container
                return connection
        connection.close()
        return None

    def _ask(self, home: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request to a driver and return its answer; None if the driver does not answer in time.

        :param home: directory name of the driver
        :param request: the request, as ``standing_protocol.py`` describes it
        """
        connection = self._connect(f"{home}/{SOCKET}") or self._connect(f"{home}/{DRAINING}")
        if connection is None:
            return None
        with connection, suppress(OSError, ValueError):
            connection.settimeout(_ANSWER_SECONDS)
            standing_protocol.send_line(connection, request)
            return standing_protocol.read_line(connection)
        return None

    def _await_end(self, home: str, session: int | None, *, seconds: float = _STOP_SECONDS) -> None:
        """Wait until all processes of a driver have ended, kill those that have not after a time, and remove its
        directory.

        :param home: directory name of the driver
        :param session: session id of the driver's processes, found before the driver was asked to end; None if it has
            none
        :param seconds: time after which processes are killed
        """
        deadline = time.monotonic() + seconds
        while session is not None and (left := _processes(session)) and time.monotonic() < deadline + _KILL_SECONDS:
            if time.monotonic() > deadline:
                for process in left:
                    _kill(process, session)
            time.sleep(_PAUSE)
        shutil.rmtree(self._path / home, ignore_errors=True)

    def _last_error(self, home: str) -> str:
        """Return the last error in a driver's output; empty if there is none."""
        with suppress(OSError):
            lines = (self._path / home / LOG).read_text(errors="replace").splitlines()[-_LOG_LINES:]
            return exit_reason.last_error(lines) or ""
        return ""


def _pid(owner: str) -> int | None:
    """Return the pid of a driver's first process; None if the process has ended, or ran on another host.

    :param owner: name of the process (host, pid and start time); the start time is empty if the process ended at once
    """
    pid, _, started = owner.partition(":")[2].partition(":")[2].partition(":")
    return int(pid) if pid.isdecimal() and started and of_process(int(pid)) == owner else None


def _key(home: str) -> str:
    """Return the key of a driver, with which the name of its directory begins."""
    return home.partition("-")[0]


def _processes(session: int) -> list[int]:
    """Return the pids of the living processes of a session."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def _kill(pid: int, session: int) -> None:
    """Kill a process, unless it has ended and its pid now belongs to a process of another session."""
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
