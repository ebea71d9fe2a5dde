"""The class archive with a real Java and Spark: created after a first run, used by the next, and optional."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.services import processes

_TRAINING = "airflow_provider_ckpt.engines.class_archive_training"
_MINUTES = 900.0


@dataclass(frozen=True)
class Seen:
    """The state of a run's processes while it ran.

    :param archived: whether its JVM had an archive of the directory mapped
    :param daemon: the module that forked its Python workers
    """

    archived: bool
    daemon: str


@dataclass
class Runs:
    """Runs of a small pipeline, each on a cold Spark of its own.

    :param archives: where they keep archives
    """

    home: Path
    archives: Path
    number: int = 0

    def run(self, conf: Mapping[str, str] | None = None) -> Seen:
        """One run, which has to deliver all it reads."""
        self.number += 1
        home = self.home / str(self.number)
        (home / "in").mkdir(parents=True)
        (home / "in" / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
        pipeline = build(
            {
                "name": "head-start",
                "source": {"type": "files", "path": str(home / "in")},
                "transform": {"decode": "json", "schema": "id bigint", "select": {"id": "id + 1"}},
                "sink": {"type": "files", "format": "jsonl", "path": str(home / "out")},
                "run": {"conf": {"spark.master": "local[1]", **(conf or {})}},
            }
        )
        url = f"sqlite:///{home}/ckpt.db"
        migrate.upgrade(url, create=True)
        engine = _Watched(pipeline, self.archives)
        with Ledger.open(url) as ledger:
            summary = replicate(PipelineContext(pipeline, ledger, _none, f"test:{self.number}"), engine)
        assert summary.records == Counts(2, 2, 0, 0)
        assert engine.error is None
        assert engine.seen is not None
        return engine.seen

    def made(self) -> list[Path]:
        """Archives that are there."""
        return sorted(self.archives.glob("*.jsa"))


class _Watched(SubmitEngine):
    """Looks at its processes after each wave."""

    def __init__(self, pipeline: Any, archives: Path) -> None:
        super().__init__(pipeline)
        self._archives = archives
        self.seen: Seen | None = None

    def run(self, *arguments: Any) -> Any:
        outcomes = super().run(*arguments)
        found = [item for item in processes.below(os.getpid()) if item.role is processes.Role.DRIVER]
        (java,) = [item for item in found if any("ckpt-run-" in part for part in item.command)]  # others have one, too
        (daemon,) = [item for item in processes.below(java.pid) if item.role is processes.Role.DAEMON]
        maps = Path(f"/proc/{java.pid}/maps").read_text()
        self.seen = Seen(str(self._archives) in maps, daemon.command[daemon.command.index("-m") + 1])
        return outcomes


def _none(name: str) -> Connection:
    raise KeyError(name)


def _until(done: Callable[[], bool], seconds: float = _MINUTES) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.5)  # each look goes through all processes


def _trainings() -> list[int]:
    """The processes that make archives now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if _TRAINING in (entry / "cmdline").read_text().split("\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _hurried() -> list[int]:
    """The processes that make archives now, which need not wait any more until nobody else works."""
    found = _trainings()
    for pid in found:
        with suppress(OSError):  # it has ended, or this user may not
            os.setpriority(os.PRIO_PROCESS, pid, 0)
    return found


def _named(path: Path, content: bytes) -> Path:
    """An archive under its own key, by its name whole, with other content."""
    path.unlink()
    name = f"{path.stem.partition('-')[0]}-{hashlib.sha256(content).hexdigest()[:16]}.jsa"
    (path.parent / name).write_bytes(content)
    return path.parent / name


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runs, Seen, bytes]]:
    """Runs with an archive that a first run has left to be made; what that one was like; the archive's content."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("head-start")
    archives = home / "archives"
    (home / "runs").mkdir()
    patch.setenv("TMPDIR", str(home / "runs"))  # others' runs on this machine would keep an archive from being made
    patch.setattr("tempfile.tempdir", str(home / "runs"))
    patch.setenv("AIRFLOW__CKPT__SPARK_HEAD_START_DIRECTORY", str(archives))
    runs = Runs(home, archives)
    first = runs.run()
    _until(lambda: bool(not _hurried() and runs.made()))
    yield runs, first, runs.made()[0].read_bytes()
    patch.undo()


@pytest.fixture
def runs(trained: tuple[Runs, Seen, bytes]) -> Runs:
    """Runs that find the archive as it was made."""
    runs, _, content = trained
    (path,) = runs.made()
    _named(path, content)
    return runs


def test_the_archive_that_a_first_run_left_to_be_made_serves_the_next(
    trained: tuple[Runs, Seen, bytes], runs: Runs
) -> None:
    _, first, _ = trained
    assert first == Seen(archived=False, daemon="airflow_provider_ckpt.spark.driver.python_daemon")
    assert sorted(path.suffix for path in runs.archives.iterdir()) == [".jsa", ".log"]

    assert runs.run() == Seen(archived=True, daemon="airflow_provider_ckpt.spark.driver.python_daemon")

    assert _trainings() == []


def test_an_archive_of_another_java_and_modules_that_cannot_be_preloaded_are_passed_over(runs: Runs) -> None:
    (path,) = runs.made()
    content = path.read_bytes()
    at = content.index(b"OpenJDK 64-Bit Server VM")
    _named(path, content[:at] + b"NotherJ" + content[at + 7 :])
    broken = {"spark.executorEnv.CKPT_PRELOADED_MODULES": "this_is_nowhere antigravity.nowhere"}

    assert runs.run(broken) == Seen(archived=False, daemon="airflow_provider_ckpt.spark.driver.python_daemon")

    assert len(runs.made()) == 1
