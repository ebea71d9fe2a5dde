"""The creation of a class archive pauses during every other run."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from airflow_provider_ckpt.engines.class_archive_training import _train, _yielding_to_other_runs
from airflow_provider_ckpt.engines.run_directory import RunDirectory, other_run_in_progress
from airflow_provider_ckpt.engines.submit import SubmitEngine

_RUN = """
import pathlib, sys, time
from airflow_provider_ckpt.engines.run_directory import RunDirectory
directory = RunDirectory()
runs, ends = map(pathlib.Path, sys.argv[1:])
runs.touch()
while not ends.exists():
    time.sleep(0.01)
directory.remove()
runs.unlink()
"""


class OtherRun:
    """A process that has a run, until :meth:`end`; it is no child of this one, which would stop it, too."""

    def __init__(self, temporary: Path) -> None:
        environment = {"TMPDIR": str(temporary), "PYTHONPATH": ":".join(sys.path)}
        self._runs, self._ends = (temporary / f"{name}-{next(_numbers)}" for name in ("runs", "ends"))
        command = [sys.executable, "-c", _RUN, str(self._runs), str(self._ends)]
        subprocess.run(["/bin/sh", "-c", '"$@" &', "sh", *command], env=environment, check=True)
        until(self._runs.exists)

    def end(self) -> None:
        """End it."""
        self._ends.touch()
        until(lambda: not self._runs.exists())


_numbers = count()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of run directories."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_run_of_another_process_is_seen_while_it_lasts(runs: Path) -> None:
    own = RunDirectory()
    (runs / "ckpt-run-here-1-1-left").mkdir()
    assert not other_run_in_progress()

    other = OtherRun(runs)
    assert other_run_in_progress()

    other.end()
    assert not other_run_in_progress()
    own.remove()


def test_a_training_is_no_run_for_which_another_training_pauses(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = runs / "ckpt-training"
    home.mkdir()
    found: list[Path] = []

    def launch(_: SubmitEngine, directory: RunDirectory) -> None:
        found.append(directory.path)
        raise RuntimeError("it is known where the run directory is")

    monkeypatch.setattr(SubmitEngine, "_launch", launch)
    with pytest.raises(RuntimeError):
        _train(home, home / "archive.jsa", "")
    assert [path.parent for path in found] == [home]


def test_the_training_waits_for_the_end_of_runs_and_stands_still_during_later_ones(runs: Path) -> None:
    other = OtherRun(runs)
    begun, ended = threading.Event(), threading.Event()
    children: list[subprocess.Popen[bytes]] = []

    def train() -> None:
        with _yielding_to_other_runs():
            children.append(subprocess.Popen(["sleep", "60"]))
            begun.set()
            ended.wait()

    training = threading.Thread(target=train)
    training.start()
    assert not begun.wait(1)
    other.end()
    assert begun.wait(20)
    (child,) = children

    later = OtherRun(runs)
    until(lambda: state(child) == "T")
    later.end()
    until(lambda: state(child) == "S")

    last = OtherRun(runs)
    until(lambda: state(child) == "T")
    ended.set()
    training.join(20)
    until(lambda: state(child) == "S")
    last.end()
    child.kill()
    child.wait()
