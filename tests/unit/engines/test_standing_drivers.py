"""Runs find, start and stop standing drivers; test programs take the place of Spark."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines import failed_starts, standing_driver, standing_drivers
from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers
from airflow_provider_ckpt.replication.process_lease_owner import of_process
from airflow_provider_ckpt.spark.driver.standing_protocol import DRAINING, LOCK, LOG, SOCKET, short_path

_KEY = "0123456789abcdef"
_DRIVER = """
import fcntl, json, os, socket, sys, time
home, seconds, busy_after = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
lock = open(home + "/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
time.sleep(seconds)
if seconds > 5:
    sys.exit("ERROR it took too long")
os.chdir(home)
listener = socket.socket(socket.AF_UNIX)
listener.bind("socket.new")
listener.listen()
os.rename("socket.new", "socket")
if os.path.exists("starting"):
    os.unlink("starting")
asked = 0
while True:
    connection, _ = listener.accept()
    line = connection.makefile().readline()
    if line:
        with open("requests", "a") as file:
            file.write(line)
        asked += 1
        runs = [{}] if asked > busy_after else []
        request = json.loads(line)
        if "stop" in request and (request["stop"] == "now" or not runs):
            connection.sendall(b'{"runs": 0}\\n')
            sys.exit()
        told = {"runs": len(runs)} if "stop" in request else {"runs": runs, "idle_seconds": 1.0}
        connection.sendall(json.dumps(told).encode() + b"\\n")
    connection.close()
"""
"""Listens after some seconds, and has a run from a number of requests on."""


class Launcher:
    """Stands for the launcher of Spark.

    :ivar started: directory of each driver that was started
    """

    def __init__(self) -> None:
        self.started: list[Path] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.seconds = 0.0
        self.busy_after = 1000
        self.error: Exception | None = None

    def __call__(self, pipeline: Pipeline, home: Path, idle: float) -> Launcher:
        self.started.append(home)
        return self

    def start(self) -> int:
        """Start a program, and return its pid."""
        if self.error is not None:
            raise self.error
        return self.spawn(self.started[-1]).pid

    def spawn(self, home: Path) -> subprocess.Popen[bytes]:
        with (home / LOG).open("ab") as log:
            command = [sys.executable, "-I", "-S", "-c", _DRIVER, str(home), str(self.seconds), str(self.busy_after)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, start_new_session=True)
        self.processes.append(process)
        return process

    def prepare_next_start(self) -> None:
        """Do nothing."""

    @property
    def living(self) -> list[int]:
        return [process.pid for process in self.processes if process.poll() is None]


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    found = Launcher()
    monkeypatch.setattr("airflow_provider_ckpt.engines.standing_launcher.StandingLauncher", found)
    yield found
    for process in found.processes:
        process.kill()
        process.wait()


@pytest.fixture
def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandingDrivers]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with StandingDrivers(create=True) as found:
        yield found


@pytest.fixture
def runtime(tmp_path: Path, drivers: StandingDrivers) -> Path:
    return tmp_path / "ckpt-spark"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no driver, with a session of its own."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def connect(
    drivers: StandingDrivers,
    *,
    key: Callable[[], str] = lambda: _KEY,
    limit: int = 2,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Connect to a driver, which is started if there is none."""
    pipeline: Any = None
    drivers.connect_or_start(key, pipeline, idle=60, limit=limit, is_stopped=is_stopped).close()


def home_of(runtime: Path, owner: str, key: str = _KEY) -> Path:
    """A driver's directory with the name of its process."""
    home = runtime / f"{key}-{os.urandom(4).hex()}"
    home.mkdir(mode=0o700)
    (home / "owner").write_text(owner)
    return home


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """In the block, the directory is locked as by its driver."""
    with (home / LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def reaped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process of this test ends within seconds."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
        return True
    return False


def requests(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "requests").read_text().splitlines()]


def test_a_directory_that_vanishes_while_it_is_listed_is_no_driver(
    drivers: StandingDrivers, runtime: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(drivers)
    ended = runtime / "ended-1"
    ended.mkdir()
    scandir = os.scandir

    @contextmanager
    def removed_after_listing(path: Any) -> Iterator[Any]:
        with scandir(path) as entries:
            found = list(entries)
            if ended.exists():
                ended.rmdir()
            yield iter(found)

    monkeypatch.setattr(os, "scandir", removed_after_listing)

    assert [state.key for state in drivers.states()] == [_KEY]
    assert not ended.exists()


def test_a_process_that_got_the_pid_of_a_driver_is_not_killed(
    drivers: StandingDrivers, runtime: Path, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_driver, "STOP_SECONDS", 0.1)
    host = of_process(stranger.pid).split(":")[1]
    home = home_of(runtime, f"cli:{host}:{stranger.pid}:1")

    with locked(home):
        drivers.stop(at_once=True)

    assert stranger.poll() is None
    assert not home.exists()


def test_a_process_that_gets_a_pid_between_the_list_of_processes_and_the_kill_is_not_killed(
    drivers: StandingDrivers,
    runtime: Path,
    launcher: Launcher,
    stranger: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launcher.seconds = 4
    monkeypatch.setattr(standing_drivers, "_START_SECONDS", 0.2)
    processes = standing_driver._processes
    monkeypatch.setattr(
        standing_driver, "_processes", lambda session: [*([stranger.pid] * bool(found := processes(session))), *found]
    )

    with pytest.raises(EngineError, match="did not accept"):
        connect(drivers)

    assert stranger.poll() is None
    assert launcher.living == []


def test_runs_that_begin_together_start_one_driver(runtime: Path, launcher: Launcher) -> None:
    launcher.seconds = 0.3

    def begin(_: int) -> None:
        with StandingDrivers(create=True) as mine:
            connect(mine)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(4)))

    assert len(launcher.started) == 1


@pytest.mark.parametrize("owner_written", [True, False])
def test_a_driver_whose_first_run_was_killed_serves_the_next_one(
    drivers: StandingDrivers, launcher: Launcher, *, owner_written: bool
) -> None:
    launcher.seconds = 1.0
    with pytest.raises(EngineError):
        connect(drivers, is_stopped=lambda: bool(launcher.processes))
    (home,) = launcher.started
    while not standing_driver._is_locked(home / LOCK):
        time.sleep(0.01)
    if not owner_written:
        (home / "owner").unlink()

    connect(drivers, limit=1)

    assert launcher.started == [home]
    assert drivers.failed_starts() == []


def test_a_start_lock_that_is_removed_stays_locked(runtime: Path, launcher: Launcher, drivers: StandingDrivers) -> None:
    launcher.seconds = 0.5

    def begin(_: int) -> None:
        with StandingDrivers(create=True) as mine:
            connect(mine)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(begin, 1)
        while not launcher.processes:
            time.sleep(0.01)
        (runtime / "start.lock").unlink(missing_ok=True)
        second = pool.submit(begin, 2)
        first.result(30)
        second.result(30)

    assert len(launcher.started) == 1


def test_a_runtime_directory_that_was_made_anew_is_not_started_in(
    drivers: StandingDrivers, runtime: Path, launcher: Launcher
) -> None:
    runtime.rename(runtime.with_name("removed"))
    runtime.mkdir(mode=0o700)

    with pytest.raises(FileNotFoundError):
        connect(drivers)

    assert launcher.started == []


def test_a_start_that_fails_releases_those_who_wait_and_is_reported(
    runtime: Path, launcher: Launcher, drivers: StandingDrivers
) -> None:
    launcher.error = subprocess.CalledProcessError(127, "/bin/sh")

    def begin(_: int) -> str:
        with StandingDrivers(create=True) as mine, pytest.raises((EngineError, subprocess.CalledProcessError)) as found:
            connect(mine)
        return str(found.value)

    began = time.time()
    with ThreadPoolExecutor(3) as pool:
        errors = list(pool.map(begin, range(3)))

    assert len(launcher.started) == 1
    assert sum("failed to start" in error for error in errors) == 2
    (failed,) = drivers.failed_starts()
    assert failed.key == _KEY
    assert began - 1 <= failed.time.timestamp() <= time.time() + 1
    assert "127" in failed.reason
    assert failed.log.stat().st_mode & 0o777 == 0o600


def test_the_output_of_a_driver_that_ended_is_kept_until_one_starts(
    drivers: StandingDrivers, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.seconds = -1  # time.sleep() raises an error
    with pytest.raises(EngineError, match="ended while it started: ValueError"):
        connect(drivers)

    (failed,) = drivers.failed_starts()
    assert "Traceback" in failed.log.read_text()
    assert failed.reason.startswith("the standing driver ended while it started: ValueError")
    assert not launcher.started[0].exists()

    launcher.seconds = 0
    with pytest.raises(EngineError, match=r"failed to start .* ago, see .*\.failed\.log"):
        connect(drivers)
    monkeypatch.setattr(failed_starts, "DELAY_SECONDS", 0)
    connect(drivers)
    assert drivers.failed_starts() == []


def test_a_failed_start_of_long_ago_is_forgotten(drivers: StandingDrivers, runtime: Path, launcher: Launcher) -> None:
    old = runtime / "ffff.failed.log"
    old.write_text("it ended")
    os.utime(old, (1, 1))

    connect(drivers)

    assert not old.exists()


def test_a_stop_during_a_start_ends_the_driver_that_is_started(drivers: StandingDrivers, launcher: Launcher) -> None:
    launcher.seconds = 0.5
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(connect, drivers)
        while not launcher.processes:
            time.sleep(0.01)
        with StandingDrivers(create=False) as others:
            others.stop(at_once=False)
        with suppress(EngineError):
            starting.result(30)

    assert reaped(launcher.processes[0])


def test_a_stop_ends_a_driver_that_starts_for_a_killed_run(drivers: StandingDrivers, launcher: Launcher) -> None:
    launcher.seconds = 4
    with pytest.raises(EngineError):
        connect(drivers, is_stopped=lambda: bool(launcher.processes))

    drivers.stop(at_once=False)

    assert reaped(launcher.processes[0])


def test_a_stop_deletes_what_killed_drivers_left(drivers: StandingDrivers, runtime: Path, launcher: Launcher) -> None:
    connect(drivers)
    launcher.processes[0].kill()
    launcher.processes[0].wait()
    assert [home.name for home in runtime.iterdir()] == [launcher.started[0].name]

    assert drivers.stop(at_once=False) == []

    assert list(runtime.iterdir()) == []


def test_a_driver_that_gets_a_run_while_room_is_made_is_left_alone(
    drivers: StandingDrivers, launcher: Launcher
) -> None:
    launcher.busy_after = 1
    connect(drivers)
    (home,) = launcher.started

    with pytest.raises(EngineError, match="1 standing drivers are busy with runs"):
        connect(drivers, key=lambda: "another", limit=1)

    assert requests(home) == [{"status": True}, {"stop": "if idle"}]
    assert (home / SOCKET).exists()


@pytest.mark.parametrize("name", [SOCKET, DRAINING])
def test_a_driver_that_ends_makes_room(drivers: StandingDrivers, runtime: Path, launcher: Launcher, name: str) -> None:
    """It has closed its socket, and its process takes another moment."""
    ending = subprocess.Popen(["sleep", "0.5"], start_new_session=True)
    launcher.processes.append(ending)
    home = home_of(runtime, of_process(ending.pid))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(short_path(drivers._descriptor, f"{home.name}/{name}"))
        listener.listen()

    with ThreadPoolExecutor(1) as pool:
        reaping = pool.submit(ending.wait)
        connect(drivers, limit=1)
        reaping.result(5)

    assert len(launcher.started) == 1


def test_what_a_driver_of_another_host_left_takes_no_room(
    drivers: StandingDrivers, runtime: Path, launcher: Launcher
) -> None:
    home = home_of(runtime, "cli:elsewhere:1:1")

    connect(drivers, limit=1)

    assert not home.exists()


def test_a_driver_is_started_by_the_key_of_its_start_not_of_the_run_s_beginning(
    drivers: StandingDrivers, launcher: Launcher
) -> None:
    """Packages are upgraded while the run waits for the start of another driver."""
    key = "before"

    with StandingDrivers(create=True) as others, ThreadPoolExecutor(1) as pool:
        with others._starting(lambda: False):
            waiting = pool.submit(connect, drivers, key=lambda: key)
            time.sleep(0.2)
            key = "after"
        waiting.result(30)

    assert launcher.started[0].name.startswith("after-")


def test_a_driver_during_whose_start_packages_changed_serves_nobody(
    drivers: StandingDrivers, launcher: Launcher
) -> None:
    with pytest.raises(EngineError, match="changed while it started"):
        connect(drivers, key=lambda: "after" if launcher.processes else "before")

    assert reaped(launcher.processes[0])
    assert [failed.key for failed in drivers.failed_starts()] == ["before"]
