"""DAG runs on a real scheduler and executor: files into a Delta table, as the task group and as one operator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.services.airflow import AirflowServices

_PIPELINE = """
name: {name}
source: {{type: files, path: "${{TEST_DATA}}/in"}}
transform:
  decode: json
  schema: id int, name string
  where: id >= 10
  select: {{id: id, name: upper(name)}}
sink: {{type: delta, path: "${{TEST_DATA}}/{name}"}}
"""
_DAGS = """
from airflow.sdk import DAG

from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

with DAG("grouped", schedule=None):
    CkptReplicationTaskGroup("people", pipeline="pipelines/grouped.yaml")

with DAG("single", schedule=None):
    CkptReplicateOperator(task_id="replicate", pipeline="pipelines/single.yaml")
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sources and targets are."""
    found = tmp_path_factory.mktemp("data")
    (found / "in").mkdir()
    (found / "tmp").mkdir()
    return found


@pytest.fixture(scope="module")
def airflow(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServices]:
    """An Airflow whose ledger is named by a connection that only its metadata database holds."""
    dags = tmp_path_factory.mktemp("dags")
    (dags / "pipelines").mkdir()
    (dags / "replication.py").write_text(_DAGS)
    for name in ("grouped", "single"):
        (dags / "pipelines" / f"{name}.yaml").write_text(_PIPELINE.format(name=name))
    home = tmp_path_factory.mktemp("home")
    services = AirflowServices(home, dags, {"TEST_DATA": str(data), "TMPDIR": str(data / "tmp")})
    try:
        services.start()
        services.cli("connections", "add", "ckpt_default", "--conn-uri", f"ckpt://{data}/ledger.db")
        services.cli("ckpt", "db", "migrate")
        yield services
    finally:
        services.stop()


def write_people(data: Path, name: str, ids: range, damaged: int = 0) -> None:
    """A file of JSON lines that appears all at once."""
    lines = [json.dumps({"id": number, "name": f"n{number}"}) for number in ids] + ['{"id": 1, "na'] * damaged
    aside = data / "tmp" / name
    aside.write_text("\n".join(lines) + "\n")
    aside.rename(data / "in" / name)


def run(airflow: AirflowServices, dag_id: str) -> tuple[dict[str, str | None], str]:
    """Run a DAG to its end; task states by short id, and the run's id."""
    run_id = airflow.trigger(dag_id)
    state = airflow.wait(dag_id, run_id)
    states = {task.removeprefix("people."): at for task, at in airflow.task_states(dag_id, run_id).items()}
    logs = "\n".join(airflow.task_log(dag_id, run_id, task) for task, at in states.items() if at == "failed")
    assert state == "success", f"{states}\n{logs}"
    return states, run_id


def status(airflow: AirflowServices, pipeline: str) -> dict[str, Any]:
    """What the command line sees."""
    found: dict[str, Any] = json.loads(airflow.cli("ckpt", "status", pipeline, "-o", "json").stdout)
    return found


def spark_processes(data: Path) -> list[str]:
    """Command lines of everything that works in a run directory of these tests."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{data}/tmp/ckpt-run-" in line:
            found.append(line)
    return found


def test_a_task_group_delivers_what_is_new_and_nothing_twice(airflow: AirflowServices, data: Path) -> None:
    write_people(data, "first.jsonl", range(1000), damaged=3)

    states, run_id = run(airflow, "grouped")

    chosen = {"plan", "submit", "settle", "route", "dead_letters", "done"}
    assert states == dict.fromkeys(chosen, "success") | dict.fromkeys(("retry", "hold"), "skipped")
    summary = airflow.xcom("grouped", run_id, "people.route")["summary"]
    assert summary["records"] == {"read": 1003, "delivered": 990, "filtered": 10, "dead_lettered": 3, "retried": 0}
    assert summary["route"] == ["dead_letters", "done"]
    assert summary["target_rows"] == 990
    assert summary["spark_started"] is True

    states, run_id = run(airflow, "grouped")

    chosen = {"plan", "settle", "route", "done"}
    skipped = ("submit", "retry", "hold", "dead_letters")
    assert states == dict.fromkeys(chosen, "success") | dict.fromkeys(skipped, "skipped")
    summary = airflow.xcom("grouped", run_id, "people.route")["summary"]
    assert summary["records"]["read"] == 0
    assert summary["spark_started"] is False
    assert summary["target_rows"] == 990

    seen = status(airflow, "grouped")
    assert seen["lease"]["held"] is False
    assert seen["dead_letters"] == {"MessageDeserialization": 3}
    assert (data / "ledger.db").exists()


def test_a_killed_task_leaves_no_spark_behind_and_the_next_run_loses_nothing(
    airflow: AirflowServices, data: Path
) -> None:
    write_people(data, "second.jsonl", range(1000, 1500))
    run_id = airflow.trigger("single")
    deadline = time.monotonic() + 300
    while not spark_processes(data):
        assert time.monotonic() < deadline, airflow.task_log("single", run_id, "replicate")
        time.sleep(0.2)

    path = f"/dags/single/dagRuns/{run_id}/taskInstances/replicate"
    airflow.api("PATCH", path.replace("+", "%2B"), {"new_state": "failed"})

    deadline = time.monotonic() + 60
    while left := spark_processes(data):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert airflow.wait("single", run_id) == "failed"
    assert status(airflow, "single")["lease"]["held"] is False, airflow.task_log("single", run_id, "replicate")
    with Ledger.open(f"sqlite:///{data}/ledger.db") as ledger:
        assert "cancel" in [event["kind"] for event in ledger.events("single", 1000)]

    run(airflow, "single")

    rows = sum(line[4] for lines in status(airflow, "single")["receipts"].values() for line in lines)
    on_disk = sum(1 for file in (data / "in").iterdir() for line in file.open() if line.endswith("}\n"))
    assert rows == on_disk - 10
