"""The ``submit`` engine if Spark does not start: the error, and no password in any file that is left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.errors import ConfigError, EngineError
from airflow_provider_ckpt.core.wave_messages import Wave
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.spark.job import Job

_PIPELINE = {
    "name": "numbers",
    "source": {"type": "files", "path": "/in"},
    "transform": {"decode": "json", "schema": "a bigint"},
    "sink": {"type": "delta", "path": "/out"},
    "run": {"connection": "cluster"},
}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the directory in which the engines of a test make their run directories; it is empty at the end."""
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SubmitEngine:
    """An engine whose Spark connection names the program ``spark2-submit``."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return connected(monkeypatch, {"spark-binary": "spark2-submit"})


def connected(monkeypatch: pytest.MonkeyPatch, extra: dict[str, str]) -> SubmitEngine:
    connection = {"conn_type": "spark", "host": "local[1]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    return SubmitEngine(Pipeline.model_validate(_PIPELINE))


def program(folder: Path, script: str) -> None:
    path = folder / "spark2-submit"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def job() -> Job:
    shape = RecordShape(raw=True, columns=(("value", "binary"),))
    return Job(
        _PIPELINE, SinkContext("ledger", "numbers", 1), shape, {"db": Connection("db", "postgres", password="x")}
    )


def go_on() -> None:
    """A run's check that finds nothing wrong."""


def test_a_connection_that_cannot_be_used_leaves_no_directory(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    engine = connected(monkeypatch, {"deploy-mode": "cluster"})

    with pytest.raises(ConfigError, match="client mode"):
        engine.start(job())

    assert list(runs.iterdir()) == []


def test_a_program_that_is_not_there_is_named_and_the_passwords_are_gone(engine: SubmitEngine, runs: Path) -> None:
    engine.start(job())

    with pytest.raises(EngineError, match=r"could not be started: .*No such file.*spark2-submit"):
        engine.ready(go_on)

    assert list(runs.glob("*/spark.properties")) != []
    assert list(runs.glob("*/job.json")) == []
    engine.kill()


def test_a_killed_spark_is_told_by_its_signal_and_not_by_a_harmless_line(
    engine: SubmitEngine, tmp_path: Path, runs: Path
) -> None:
    program(tmp_path, "echo 'Setting Spark log level to \"WARN\".'; kill -9 $$")
    engine.start(job())

    with pytest.raises(EngineError, match=r"Spark ended unexpectedly: it was killed by SIGKILL, .* runs out\. Nothing"):
        engine.ready(go_on)

    assert list(runs.glob("*/job.json")) == []
    engine.kill()


def test_a_stopped_engine_says_so_and_starts_nothing_more(engine: SubmitEngine, tmp_path: Path, runs: Path) -> None:
    program(tmp_path, "exec sleep 60")
    engine.start(job())
    started = time.monotonic()

    engine.kill()

    assert time.monotonic() - started < 2.5
    assert list(runs.iterdir()) == []
    for action in (lambda: engine.start(job()), lambda: engine.ready(go_on), lambda: engine.run(Wave(1, [], 5), go_on)):
        with pytest.raises(EngineError, match="Spark was stopped"):
            action()


def test_what_a_killed_run_left_is_swept_when_an_engine_starts(
    engine: SubmitEngine, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    left = runs / "ckpt-run-here-4000000-1-abc_1234"
    left.mkdir()
    (left / "job.json").write_text("hush")

    engine.start(job())
    engine.kill()

    assert not left.exists()
