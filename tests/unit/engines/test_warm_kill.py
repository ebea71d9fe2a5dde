"""A run on a standing driver that is killed or closed at any moment ends with one error, and leaves no files."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines import warm
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.engines.warm import StandingEngine
from airflow_provider_ckpt.spark.driver.standing_protocol import BELL, read_line

_PIPELINE = Pipeline.model_validate(
    {
        "name": "numbers",
        "source": {"type": "files", "path": "/in"},
        "transform": {"decode": "json", "schema": "a bigint"},
        "sink": {"type": "delta", "path": "/out"},
    }
)
_JOB: Any = SimpleNamespace(to_json=lambda: {"job": True})
_WAVE: Any = SimpleNamespace(number=1, to_json=lambda: {"wave": 1})
_TRACED = ("engines/warm.py", "engines/run_directory_engine.py", "engines/run_directory.py", "threading.py")


class Driver:
    """Accepts runs, and ends them when their client goes.

    :ivar gone: number of runs whose client has closed the connection
    :ivar connections: number of times that a run asked for a driver
    """

    def __init__(self) -> None:
        self.gone = threading.Semaphore(0)
        self.connections = 0
        self.before_accepting: Callable[[], None] = lambda: None

    def connect(self, *_: Any, **__: Any) -> socket.socket:
        self.connections += 1
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(ours,), daemon=True).start()
        self.before_accepting()
        return theirs

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            read_line(connection)
            connection.sendall(BELL)
            while connection.recv(64):
                pass
        self.gone.release()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def driver(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    found = Driver()
    monkeypatch.setattr(warm, "connect_or_start", found.connect)
    yield found
    for thread in threading.enumerate():
        if thread.name == "ckpt-warm":  # it would start a real driver once the fake is gone
            thread.join(10)


@pytest.fixture
def engine(driver: Driver) -> Iterator[StandingEngine]:
    """Its run has been accepted."""
    found = StandingEngine(_PIPELINE)
    found.start(_JOB)
    while found._connection is None:
        time.sleep(0.001)
    yield found
    found.kill()


def interrupted(function: Callable[[], object], act: Callable[[], object], line: int) -> None:
    """Call a function, and another one before the n-th line that it executes, as a signal handler does."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(_TRACED):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                act()
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)


def ends(function: Callable[[], object]) -> bool:
    """Return whether a function ends within seconds, in a thread of its own; its error is raised here."""
    errors: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    for error in errors:
        raise error
    return not thread.is_alive()


def no_check() -> None:
    """Find nothing that must end the run."""


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith("ckpt-run-")]


def test_a_kill_in_the_middle_of_a_start_ends_the_run_with_one_error(driver: Driver, temporary: Path) -> None:
    for line in range(1, 120):
        engine = StandingEngine(_PIPELINE)

        def begin(engine: StandingEngine = engine) -> None:
            engine.start(_JOB)
            engine.ready(no_check)

        with pytest.raises(EngineError, match="Spark was stopped"):
            assert ends(partial(interrupted, begin, engine.kill, line)), line
        engine.kill()
        assert engine._connection is None
        assert left_behind(temporary) == [], line


def test_a_kill_in_the_middle_of_a_wave_ends_the_run_with_one_error(driver: Driver, temporary: Path) -> None:
    for line in range(1, 60):
        engine = StandingEngine(_PIPELINE)
        engine.start(_JOB)
        while engine._connection is None:
            time.sleep(0.001)

        with pytest.raises(EngineError, match="Spark was stopped"):
            assert ends(partial(interrupted, partial(engine.run, _WAVE, no_check), engine.kill, line)), line
        assert left_behind(temporary) == [], line


def test_a_kill_in_the_middle_of_a_close_waits_for_nothing(driver: Driver, temporary: Path) -> None:
    """A signal handler runs in the thread that it interrupts, which may hold a lock."""
    for line in range(1, 40):
        engine = StandingEngine(_PIPELINE)
        engine.start(_JOB)
        while engine._connection is None:
            time.sleep(0.001)

        assert ends(partial(interrupted, engine.close, engine.kill, line)), line
        assert driver.gone.acquire(timeout=5)
        assert left_behind(temporary) == [], line


def test_a_run_that_was_killed_before_it_looks_for_a_driver_starts_none(driver: Driver) -> None:
    engine = StandingEngine(_PIPELINE)
    engine.kill()

    engine._find("a run directory")

    assert driver.connections == 0


def test_a_kill_after_the_end_does_nothing(engine: StandingEngine, temporary: Path) -> None:
    engine.close()
    engine.kill()
    engine.close()

    with pytest.raises(EngineError, match="Spark was stopped"):
        engine.start(_JOB)
    assert left_behind(temporary) == []


def test_a_driver_that_accepts_a_run_which_was_left_meanwhile_loses_it_at_once(driver: Driver, temporary: Path) -> None:
    engine = StandingEngine(_PIPELINE)
    asked, left = threading.Event(), threading.Event()

    def wait_until_left() -> None:
        asked.set()
        assert left.wait(10)

    driver.before_accepting = wait_until_left

    engine.start(_JOB)
    assert asked.wait(10)
    engine.close()
    left.set()

    assert driver.gone.acquire(timeout=5)
    assert engine._connection is None


def test_a_run_waits_on_a_descriptor_beyond_those_that_select_knows(engine: StandingEngine) -> None:
    connection = engine._connection
    assert connection is not None
    high = os.dup2(connection.fileno(), 2000)
    other = socket.socket(fileno=high)
    engine._connections[:] = [other]
    connection.close()

    began = time.monotonic()
    engine._wait()

    assert time.monotonic() - began > 0.01


def test_a_cold_run_that_is_killed_while_it_closes_reports_no_missing_file(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "airflow_provider_ckpt.engines.launcher.Launcher",
        lambda *_: SimpleNamespace(launch=lambda: time.sleep(0.2), kill=lambda: True),
    )
    engine = SubmitEngine(_PIPELINE)
    engine.start(_JOB)
    assert engine._protocol is not None
    stop = engine._protocol.stop

    def killed_first() -> None:
        engine.kill()
        stop()

    monkeypatch.setattr(engine._protocol, "stop", killed_first)
    engine.close()
    assert left_behind(temporary) == []
