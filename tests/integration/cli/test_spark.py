"""``airflow ckpt spark`` from a shell: start a standing driver, show it, use it in a run, and stop it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.command import CkptCommand
from tests.services.warm_airflow import WarmAirflow
from tests.services.warm_spark import WarmSpark, living

_PIPELINE = """
name: people
source: {{type: files, path: {data}/in}}
transform: {{decode: json, schema: "id int", select: {{id: id + 1}}}}
sink: {{type: delta, path: {data}/out}}
"""


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmSpark]:
    """Yield a runtime directory in which the commands look for a warm Spark; stop that Spark at the end."""
    warm = WarmSpark(tmp_path / "runtime")
    yield warm
    warm.stop()


@pytest.fixture
def command(warm_airflow: WarmAirflow, warm: WarmSpark) -> CkptCommand:
    command = CkptCommand(warm_airflow.home, {}, airflow=warm_airflow.command)
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

    assert told(command, "spark", "status") == {"drivers": [], "failed_starts": []}
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
    assert told(command, "spark", "status") == {"drivers": [], "failed_starts": []}


def test_a_start_that_failed_is_shown_with_its_log(tmp_path: Path, command: CkptCommand) -> None:
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").write_text("#!/bin/sh\necho 'Error: this Java is broken' >&2\nexit 1\n")
    (java / "bin" / "java").chmod(0o700)
    command.env["JAVA_HOME"] = str(java)

    done = command.run("spark", "start")
    (failed,) = told(command, "spark", "status")["failed_starts"]
    table = command.run("spark", "status").stdout

    assert done.returncode == 1
    assert "this Java is broken" in done.stderr
    assert failed["reason"].endswith("ended while it started: Error: this Java is broken")
    assert "this Java is broken" in Path(failed["log"]).read_text()
    assert failed["time"][:2] == "20"
    assert "starts that failed" in table


def test_a_pipeline_that_uses_none_is_refused(tmp_path: Path, command: CkptCommand) -> None:
    (tmp_path / "people.yaml").write_text(_PIPELINE.format(data=tmp_path) + "run: {engine: submit}\n")

    done = command.run("spark", "start", str(tmp_path / "people.yaml"))

    assert done.returncode == 1
    assert "runs of this pipeline use no standing Spark driver" in done.stderr
