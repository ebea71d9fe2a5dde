"""The ``submit`` engine with a real Spark: its start, secrets, the loss of Spark, and the removal of all files."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, EngineError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask, Wave
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.replication.run.engine_protocol import EngineInfo
from airflow_provider_ckpt.spark.job import Job

_SECRET = "correct-horse-battery"


def _pipeline(folder: Path, select: str = "a + 1") -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "numbers",
            "source": {"type": "files", "path": str(folder)},
            "transform": {"decode": "json", "schema": "a bigint", "select": {"b": select}},
            "sink": {"type": "delta", "path": str(folder / "out")},
        }
    )


def _job(pipeline: Pipeline) -> Job:
    connection = Connection("db", "postgres", password=_SECRET)
    shape = RecordShape(raw=True, columns=(("value", "binary"),))
    return Job(pipeline.document(), SinkContext("ledger", pipeline.name, 1), shape, {"db": connection})


def _check_not_killed() -> None:
    """A run's check that finds nothing wrong."""


def _processes(needle: str) -> dict[int, str]:
    """Command lines, by pid, of the processes that have ``needle`` in theirs."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if needle in line:
                found[int(entry.name)] = line
    return found


def _gone(needle: str, seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while _processes(needle) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not _processes(needle)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the directory in which the engines of a test make their run directories; it is empty at the end."""
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert _gone(str(folder))


def test_spark_starts_with_its_secrets_out_of_sight_tells_where_its_pages_are_and_its_loss_is_told(
    tmp_path: Path, runs: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    logged = {"spark.ui.enabled": "true", "spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events)}
    pipeline = _pipeline(tmp_path)
    pipeline = pipeline.model_copy(
        update={"run": pipeline.run.model_copy(update={"conf": {**pipeline.run.conf, **logged}})}
    )
    told: list[EngineInfo] = []
    engine = SubmitEngine(pipeline, on_ready=told.append)
    engine.start(_job(pipeline))
    try:
        ready = engine.ready(_check_not_killed)
        (directory,) = runs.iterdir()
        spark = _processes(str(directory))

        assert ready.parallelism == os.cpu_count()
        assert list(ready.columns) == [("b", "bigint")]
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert not (directory / "job.json").exists()
        assert not (directory / "spark.properties").exists()
        assert list(directory.glob("blockmgr-*"))
        assert spark
        assert not [line for line in spark.values() if _SECRET in line]

        assert told == [ready]
        with urlopen(f"{ready.ui}/api/v1/applications", timeout=60) as answer:
            (application,) = json.load(answer)
        assert application["id"] == ready.application
        assert [file.name for file in events.rglob(f"*{ready.application}*")]

        for pid, line in spark.items():
            if "java" in line:
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="Spark ended unexpectedly: it was killed by SIGKILL"):
            engine.run(Wave(1, [[BatchTask(BatchKey(1, "files", 0), Range(0, 5), 1)]], 5), _check_not_killed)
    finally:
        engine.kill()


def test_a_killed_driver_is_told_by_its_signal(tmp_path: Path, runs: Path) -> None:
    pipeline = _pipeline(tmp_path)
    engine = SubmitEngine(pipeline)
    engine.start(_job(pipeline))
    try:
        engine.ready(_check_not_killed)
        for pid, line in _processes(str(runs)).items():
            if "java" not in line:
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="exit status 137, that is SIGKILL"):
            engine.run(Wave(1, [[BatchTask(BatchKey(1, "files", 0), Range(0, 5), 1)]], 5), _check_not_killed)
    finally:
        engine.kill()


def test_an_expression_that_names_no_column_is_refused_before_anything_is_sent(tmp_path: Path, runs: Path) -> None:
    pipeline = _pipeline(tmp_path, select="zz + 1")
    engine = SubmitEngine(pipeline)
    engine.start(_job(pipeline))
    try:
        with pytest.raises(ConfigError, match=r"transform.select.b cannot be used.*zz"):
            engine.ready(_check_not_killed)
    finally:
        engine.kill()
        assert runs.exists()


def test_a_spark_that_cannot_start_says_why(tmp_path: Path, runs: Path) -> None:
    document = _pipeline(tmp_path).document()
    document["run"]["conf"] = {"spark.master": "local[nonsense]"}
    pipeline = Pipeline.model_validate(document)
    engine = SubmitEngine(pipeline)
    engine.start(_job(pipeline))
    try:
        with pytest.raises(EngineError, match=r"exit status 1; .*local\[nonsense"):
            engine.ready(_check_not_killed)
    finally:
        engine.kill()
        assert runs.exists()
