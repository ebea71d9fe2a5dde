"""``airflow ckpt spark`` as a person calls it: start, look, run, stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.command import CkptCommand
from tests.services.warm_spark import WarmSpark, living

_PIPELINE = """
name: people
source: {{type: files, path: {data}/in}}
transform: {{decode: json, schema: "id int", select: {{id: id + 1}}}}
sink: {{type: delta, path: {data}/out}}
"""


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmSpark]:
    """Where the commands look for a Spark; nothing is left of it."""
    warm = WarmSpark(tmp_path / "runtime")
    yield warm
    warm.stop()


@pytest.fixture
def command(tmp_path: Path, warm: WarmSpark) -> CkptCommand:
    command = CkptCommand(tmp_path / "home", {})
    command.env |= warm.environment
    command.migrate()
    return command


def told(command: CkptCommand, *arguments: str) -> Any:
    done = command.run(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_spark_is_started_shown_used_and_stopped(tmp_path: Path, command: CkptCommand, warm: WarmSpark) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "people.yaml").write_text(_PIPELINE.format(data=tmp_path))

    assert told(command, "spark", "status") == {"drivers": []}
    (started,) = told(command, "spark", "start")["drivers"]
    told(command, "spark", "start", str(tmp_path / "people.yaml"))
    assert told(command, "run", str(tmp_path / "people.yaml"))["records"]["delivered"] == 1
    (used,) = told(command, "spark", "status")["drivers"]
    table = command.run("spark", "status").stdout
    processes = warm.processes()
    told(command, "spark", "stop")

    assert (used["pid"], used["runs_served"], used["runs"]) == (started["pid"], 1, [])
    assert {"version", "spark", "age_seconds", "memory_bytes", "sessions", "log"} <= set(used)
    assert "runs served" in table
    assert len(processes) > 2
    assert living(processes) == []
    assert told(command, "spark", "status") == {"drivers": []}


def test_a_pipeline_that_uses_none_is_refused(tmp_path: Path, command: CkptCommand) -> None:
    (tmp_path / "people.yaml").write_text(_PIPELINE.format(data=tmp_path) + "run: {engine: submit}\n")

    done = command.run("spark", "start", str(tmp_path / "people.yaml"))

    assert done.returncode == 1
    assert "runs of this pipeline use no warm Spark" in done.stderr
