"""A standing driver without Spark: which connections it serves, and when it accepts no more."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from airflow_provider_ckpt.core.wave_messages import Wave
from airflow_provider_ckpt.engines import warm
from airflow_provider_ckpt.engines.run_directory import RunDirectory
from airflow_provider_ckpt.spark.driver import run_server
from airflow_provider_ckpt.spark.driver.run_directory_protocol import DriverSide
from airflow_provider_ckpt.spark.driver.standing_protocol import BELL, DRAINING, SOCKET, read_line, send_line


class NoMemory:
    """Stands for the measurement of memory."""

    has_grown = False

    def __init__(self, _: Any) -> None:
        self.error: Exception | None = None

    def measure(self) -> None:
        """Raise an error, if a test wants one."""
        if self.error is not None:
            raise self.error

    def total(self) -> int:
        return 0


class Driver:
    """A driver whose directory is short enough for the path of a socket.

    :param idle: seconds without runs after which it ends
    """

    def __init__(self, home: Path, idle: float = 600.0) -> None:
        self.home = home
        spark = MagicMock()
        spark.sparkContext._jsc.sc().isStopped.return_value = False
        self.driver = run_server.RunServer(home, spark, idle)
        self.thread = threading.Thread(target=self.driver.serve, daemon=True)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(str(self.home / SOCKET))
        return connection

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.connect() as connection:
            send_line(connection, request)
            return read_line(connection)

    @property
    def accepts_runs(self) -> bool:
        return (self.home / SOCKET).exists()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Driver]]:
    monkeypatch.setattr(run_server, "Memory", NoMemory)
    monkeypatch.setattr(run_server, "_CHECK_INTERVAL", 0.05)
    made: list[Driver] = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:

        def make(**arguments: Any) -> Driver:
            home = Path(folder) / str(len(made))
            home.mkdir()
            made.append(Driver(home, **arguments))
            return made[-1]

        yield make
        for driver in made:
            if driver.thread.is_alive():
                with suppress(OSError):
                    driver.ask({"stop": "now"})
                driver.thread.join(10)


@pytest.fixture
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run's directory with a job."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = RunDirectory()
    (found.path / "job.json").write_text("{}")
    yield found.path
    found.remove()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("seen", [False, True])
def test_a_client_that_has_gone_keeps_its_job_for_another_driver(
    make: Callable[..., Driver], run_directory: Path, *, seen: bool
) -> None:
    """It has waited too long for the acceptance, or dies when it sees it."""
    driver = make()
    connection = driver.connect()
    send_line(connection, {"run": str(run_directory), "idle": 600})
    if not seen:
        connection.close()
    driver.thread.start()
    if seen:
        assert connection.recv(1) == BELL
        connection.close()

    until(lambda: driver.ask({"status": True})["runs_served"] == 1)

    assert (run_directory / "job.json").exists()


def test_a_client_that_is_there_is_served(make: Callable[..., Driver], run_directory: Path) -> None:
    driver = make()
    driver.thread.start()
    with driver.connect() as connection:
        send_line(connection, {"run": str(run_directory), "idle": 600})
        assert connection.recv(1) == BELL
        connection.sendall(BELL)
        assert connection.recv(1) == b""  # the job is none

    assert not (run_directory / "job.json").exists()


def test_a_driver_with_runs_is_not_stopped_to_make_room(make: Callable[..., Driver], run_directory: Path) -> None:
    driver = make()
    driver.thread.start()
    with driver.connect() as connection:
        send_line(connection, {"run": str(run_directory), "idle": 600})
        assert connection.recv(1) == BELL
        assert driver.ask({"stop": "if idle"}) == {"runs": 1}
        assert driver.accepts_runs

    until(lambda: driver.ask({"status": True})["runs"] == [])
    assert driver.ask({"stop": "if idle"}) == {"runs": 0}
    driver.thread.join(10)
    assert (driver.home / DRAINING).exists()


def test_a_driver_that_was_idle_for_long_serves_the_client_that_waits(make: Callable[..., Driver]) -> None:
    driver = make(idle=0.0)

    with driver.connect() as connection:
        assert not driver.driver._must_end()
        driver.thread.start()
        time.sleep(0.3)  # accepted, and its request is awaited
        assert driver.accepts_runs
        send_line(connection, {"status": True})
        assert read_line(connection)["accepts_runs"]

    driver.thread.join(10)
    assert not driver.accepts_runs


def test_a_run_that_has_ended_is_forgotten_whatever_its_end_brings(
    make: Callable[..., Driver], run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    driver = make()
    driver.driver._memory.error = RuntimeError("no gateway")  # type: ignore[attr-defined]
    driver.thread.start()
    with driver.connect() as connection:
        send_line(connection, {"run": str(run_directory), "idle": 600})
        assert connection.recv(1) == BELL
        connection.sendall(BELL)
        assert connection.recv(1) == b""

    until(lambda: driver.ask({"status": True})["runs"] == [])


def test_a_run_of_the_warm_engine_is_served_wave_by_wave(
    make: Callable[..., Driver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends of the socket as they are; only Spark is missing."""
    driver = make()

    def serve_job(_: object, side: DriverSide, job: object) -> None:
        del job
        side.ready(2, [("id", "bigint")])
        for wave in side.waves():
            side.finished(wave.number, [], 0.1)

    monkeypatch.setattr(run_server.RunServer, "_serve_job", serve_job)
    job = SimpleNamespace(context=SimpleNamespace(pipeline="numbers", epoch=1))
    monkeypatch.setattr(DriverSide, "job", lambda _: job)
    monkeypatch.setattr(warm, "connect_or_start", lambda *_, **__: driver.connect())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    driver.thread.start()
    engine = warm.StandingEngine(MagicMock())
    engine.start(MagicMock(to_json=dict))

    assert engine.ready(lambda: None).parallelism == 2
    assert engine.run(Wave(1, [], 1.0), lambda: None) == []
    assert len(driver.ask({"status": True})["runs"]) == 1
    assert engine.run(Wave(2, [], 1.0), lambda: None) == []
    engine.close()

    until(lambda: driver.ask({"status": True})["runs"] == [])
    assert driver.ask({"status": True})["runs_served"] == 1
