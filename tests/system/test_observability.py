"""Tests of a real Airflow's reports of a run: metrics, lineage, notices; tasks and triggers find the ledger."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.replication.metric_names import COUNTERS, GAUGES, Metric
from tests.services.airflow import AirflowServices
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.statsd import StatsdServer

_ROOT = Path(__file__).parents[2]
_PIPELINE = """
name: people
source: {{type: files, path: "{data}/in"}}
transform: {{decode: json, schema: "id int", where: id >= 10}}
sink: {{type: files, path: "{data}/out", format: jsonl}}
"""
_DAGS = """
import json, os
from airflow.sdk import DAG

from airflow_provider_ckpt.notifications.ckpt import CkptNotifier
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from tests.system.which_ledger import WhichLedgerOperator


def keep(context):
    with open(os.environ["NOTICES"], "a") as file:
        file.write(json.dumps([context["ckpt"].subject, context["ckpt"].text]) + "\\n")


tell = CkptNotifier(keep)
with DAG("people", schedule=None):
    CkptReplicateOperator(
        task_id="replicate", pipeline="people.yaml", on_success_callback=tell, on_failure_callback=tell
    )

with DAG("which", schedule=None):
    for way in json.loads(os.environ["WAYS"]):
        WhichLedgerOperator(task_id=way, ckpt_conn_id=way)
"""


@dataclass
class Deployment:
    """An Airflow, and all that it tells.

    :param ledgers: the id of the ledger behind each connection
    :param which: the run in which tasks and triggers look for them; it goes on beside the tests
    """

    airflow: AirflowServices
    data: Path
    statsd: StatsdServer
    ledgers: dict[str, str]
    which: str

    def lines(self, name: str) -> list[Any]:
        """The JSON lines of a file that tasks have written."""
        return [json.loads(line) for line in (self.data / name).read_text().splitlines()]

    def completed_lineage(self) -> Any:
        """Wait for the lineage event of the one completed task with outputs; Airflow sends it as the process ends."""
        deadline = time.monotonic() + 30
        while True:
            events = self.lines("lineage.jsonl")
            found = [event for event in events if event["eventType"] == "COMPLETE" and event["outputs"]]
            if found or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        [event] = found
        return event

    def run(self, dag_id: str) -> tuple[str, str]:
        """Run a DAG to its end: its state, and what its one task has logged."""
        run_id = self.airflow.trigger(dag_id)
        state = self.airflow.wait(dag_id, run_id)
        return state, "\n".join(self.airflow.task_log(dag_id, run_id, task) for task in self._tasks(dag_id, run_id))

    def _tasks(self, dag_id: str, run_id: str) -> list[str]:
        return list(self.airflow.task_states(dag_id, run_id))


def made(url: str) -> str:
    """The id of a ledger made there."""
    migrate.upgrade(url, create=True)
    with Ledger.open(url) as ledger:
        return ledger.id


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Deployment]:
    """An Airflow that sends metrics to a UDP socket and lineage to a file, with a connection of each kind."""
    data, dags = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("dags")
    (data / "in").mkdir()
    (data / "tmp").mkdir()
    (dags / "people.yaml").write_text(_PIPELINE.format(data=data))
    (dags / "people.py").write_text(_DAGS)
    servers = {way: postgres_server.new_database() for way in ("by_uri", "by_backend")}
    uris = {way: dsn.replace("postgresql:", "ckpt:", 1) for way, dsn in servers.items()}
    files = {way: data / f"{way}.db" for way in ("by_json", "by_metadata")}
    ledgers = {way: made(sqlalchemy_url(dsn)) for way, dsn in servers.items()}
    ledgers |= {way: made(f"sqlite:///{file}") for way, file in files.items()}
    secrets = data / "connections.json"
    secrets.write_text(json.dumps({"by_backend": uris["by_backend"]}))
    with StatsdServer() as statsd:
        env = {
            **statsd.env,
            "AIRFLOW_CONN_BY_URI": uris["by_uri"],
            "AIRFLOW_CONN_BY_JSON": json.dumps({"conn_type": "ckpt", "extra": {"path": str(files["by_json"])}}),
            "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": f"sqlite:///{data}/ledger.db",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": f"{data}/lineage.jsonl", "append": True}
            ),
            "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
            "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(secrets)}),
            "NOTICES": f"{data}/notices.jsonl",
            "PYTHONPATH": str(_ROOT),
            "TMPDIR": str(data / "tmp"),
            "WAYS": json.dumps(list(ledgers)),
        }
        airflow = AirflowServices(tmp_path_factory.mktemp("home"), dags, env, triggerer=True)
        try:
            airflow.start()
            airflow.cli("connections", "add", "by_metadata", "--conn-uri", f"ckpt://{files['by_metadata']}")
            yield Deployment(airflow, data, statsd, ledgers, airflow.trigger("which"))
        finally:
            airflow.stop()


def test_a_run_tells_its_numbers_its_lineage_and_a_person(deployment: Deployment) -> None:
    lines = [json.dumps({"id": number}) for number in range(100)] + ['{"id": 1, "na'] * 3
    (deployment.data / "in" / "first.jsonl").write_text("\n".join(lines) + "\n")

    state, log = deployment.run("people")

    assert state == "success", log
    assert "103 records read, 90 delivered, 10 filtered, 3 dead-lettered" in log

    samples = deployment.statsd.samples(pipeline="people")
    assert {sample.name for sample in samples} == {metric.value for metric in Metric}
    totals: Counter[str] = Counter()
    newest: dict[str, float] = {}
    for sample in samples:
        totals[sample.name] += int(sample.value) if sample.name in COUNTERS else 0
        newest |= {sample.name: sample.value} if sample.name in GAUGES else {}
    records = {name.partition(".")[2]: count for name, count in totals.items() if name.startswith("records.")}
    assert records == {"read": 103, "delivered": 90, "filtered": 10, "dead_lettered": 3}
    assert (totals[Metric.COMMITTED] > 0, totals[Metric.COMMIT_FAILED], totals[Metric.TAKEOVERS]) == (True, 0, 0)
    assert (newest[Metric.LAG], newest[Metric.IN_FLIGHT], newest[Metric.PARKED]) == (0, 0, 3)
    assert {sample.tags["partition"] for sample in samples if sample.name == Metric.LAG} == {"files"}

    told = deployment.completed_lineage()
    [source], [sink] = told["inputs"], told["outputs"]
    assert (source["namespace"], source["name"]) == ("file", f"{deployment.data}/in")
    assert (sink["namespace"], sink["name"]) == ("file", f"{deployment.data}/out")
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 103
    assert sink["outputFacets"]["outputStatistics"]["rowCount"] == 90
    assert told["run"]["facets"]["ckpt"]["deadLettered"] == 3

    [[subject, text]] = deployment.lines("notices.jsonl")
    assert subject == "Pipeline people: 3 records dead-lettered"
    assert f"3 MessageDeserialization. They are in the JSON lines under {deployment.data}/out" in text


def test_a_run_that_fails_tells_a_person_why(deployment: Deployment) -> None:
    (deployment.data / "in").rename(deployment.data / "elsewhere")

    state, log = deployment.run("people")

    assert state == "failed", log
    subject, text = deployment.lines("notices.jsonl")[-1]
    assert subject == "Pipeline people: failed"
    assert "It failed: [Source] pipeline people: " in text
    assert f"{deployment.data}/in. Create it" in text
    events = [event for event in deployment.lines("lineage.jsonl") if event["job"]["name"] == "people.replicate"]
    assert events[-1]["eventType"] == "FAIL"
    assert str(deployment.data) in events[-1]["run"]["facets"]["errorMessage"]["message"]


def test_tasks_triggers_and_the_command_line_find_one_ledger_whatever_names_it(deployment: Deployment) -> None:
    # In the environment and in a backend test_ledger_ways.py looks, which takes less time.
    checked = json.loads(deployment.airflow.cli("ckpt", "db", "check", "--ledger", "by_metadata", "-o", "json").stdout)
    state = deployment.airflow.wait("which", deployment.which)

    assert state == "success", "\n".join(
        deployment.airflow.task_log("which", deployment.which, way) for way in deployment.ledgers
    )
    found = {way: deployment.airflow.xcom("which", deployment.which, way) for way in deployment.ledgers}
    assert found == {way: {"task": known, "trigger": known} for way, known in deployment.ledgers.items()}
    assert checked["ledger"] == f"SQLite file {deployment.data}/by_metadata.db"
    assert checked["from"] == "connection by_metadata"
