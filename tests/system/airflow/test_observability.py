"""Tests of metrics, lineage and notices from a real Airflow, and of tasks and triggers that find the ledger."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.replication.metric_names import COUNTERS, GAUGES, Metric
from tests.services.airflow import AirflowServices
from tests.services.statsd import StatsdServer
from tests.system.airflow.deployment import PATIENCE, Deployment
from tests.system.airflow.ledgers import NamedLedgers

_PIPELINE = """
name: people
source: {{type: files, path: "{data}/in"}}
transform: {{decode: json, schema: "id int", where: id >= 10}}
sink: {{type: files, path: "{data}/out", format: jsonl}}
run: {{conf: {{spark.master: "local[3]"}}}}
"""
_DAGS = """
import json

from airflow.providers.openlineage.utils.selective_enable import enable_lineage
from airflow.sdk import DAG

from airflow_provider_ckpt.notifications.ckpt import CkptNotifier
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from tests.system.airflow.which_ledger import WhichLedgerOperator


def keep(context):
    with open({notices!r}, "a") as file:
        file.write(json.dumps([context["ckpt"].subject, context["ckpt"].text]) + "\\n")


tell = CkptNotifier(keep)
with DAG("people", schedule=None) as people:
    CkptReplicateOperator(
        task_id="replicate", pipeline="pipelines/people.yaml", on_success_callback=tell, on_failure_callback=tell
    )
enable_lineage(people)

with DAG("which", schedule=None):
    for way in {ways!r}:
        WhichLedgerOperator(task_id=way, ckpt_conn_id=way)
"""


@dataclass
class Observed:
    """The Airflow that all share, and what runs of the DAG ``people`` have told.

    :param data: a folder for the input, for ``out`` and for notices
    :param events: file of the lineage events
    """

    airflow: AirflowServices
    data: Path
    events: Path

    def notices(self) -> list[Any]:
        """Subject and text of each notice, oldest first."""
        return [json.loads(line) for line in (self.data / "notices.jsonl").read_text().splitlines()]

    def lineage(self, kind: str) -> Any:
        """Wait for the lineage event of the only task that ended so; Airflow sends it as the task's process ends.

        :param kind: ``COMPLETE`` or ``FAIL``
        """
        found: list[Any] = []

        def told() -> bool:
            events = [json.loads(line) for line in self.events.read_text().splitlines()]
            found[:] = [e for e in events if (e["job"]["name"], e["eventType"]) == ("people.replicate", kind)]
            return bool(found)

        self.airflow.until(told, PATIENCE, f"there is no lineage event {kind}")
        (event,) = found
        return event

    def run(self) -> tuple[str, str]:
        """Run the DAG ``people`` to its end: its state, and what its task has logged."""
        run_id = self.airflow.trigger("people")
        state = self.airflow.wait("people", run_id, PATIENCE)
        return state, self.airflow.task_log("people", run_id, "replicate")


@pytest.fixture(scope="module")
def observed(
    deployment: Deployment, ledgers: NamedLedgers, lineage: Path, tmp_path_factory: pytest.TempPathFactory
) -> Observed:
    """Brings the DAGs into the folder that Airflow watches."""
    data = tmp_path_factory.mktemp("observed")
    (data / "in").mkdir()
    folder = deployment.dags / "observed"  # one level deeper than the declarations that `replication.py` makes DAGs of
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines" / "people.yaml").write_text(_PIPELINE.format(data=data))
    (folder / "people.py").write_text(_DAGS.format(notices=f"{data}/notices.jsonl", ways=list(ledgers.ids)))
    return Observed(deployment.airflow, data, lineage)


@pytest.fixture(scope="module")
def which(observed: Observed, ledgers: NamedLedgers) -> str:
    """The run in which tasks and triggers look for ledgers, all of which are defined; it goes on beside the tests."""
    by_metadata = {"connection_id": "by_metadata", "conn_type": "ckpt", "schema": str(ledgers.by_metadata)[1:]}
    observed.airflow.api("POST", "/connections", by_metadata)
    return observed.airflow.trigger("which")


@pytest.mark.usefixtures("which")
def test_a_run_tells_its_numbers_its_lineage_and_a_person(observed: Observed, statsd: StatsdServer) -> None:
    lines = [json.dumps({"id": number}) for number in range(100)] + ['{"id": 1, "na'] * 3
    (observed.data / "in" / "first.jsonl").write_text("\n".join(lines) + "\n")

    state, log = observed.run()

    assert state == "success", log
    assert "103 records read, 90 delivered, 10 filtered, 3 dead-lettered" in log

    samples = statsd.samples(pipeline="people")
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

    told = observed.lineage("COMPLETE")
    [source], [sink] = told["inputs"], told["outputs"]
    assert (source["namespace"], source["name"]) == ("file", f"{observed.data}/in")
    assert (sink["namespace"], sink["name"]) == ("file", f"{observed.data}/out")
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 103
    assert sink["outputFacets"]["outputStatistics"]["rowCount"] == 90
    assert told["run"]["facets"]["ckpt"]["deadLettered"] == 3

    [[subject, text]] = observed.notices()
    assert subject == "Pipeline people: 3 records dead-lettered"
    assert f"3 MessageDeserialization. They are in the JSON lines under {observed.data}/out" in text


def test_a_run_that_fails_tells_a_person_why(observed: Observed) -> None:
    (observed.data / "in").rename(observed.data / "elsewhere")

    state, log = observed.run()

    assert state == "failed", log
    subject, text = observed.notices()[-1]
    assert subject == "Pipeline people: failed"
    assert "It failed: [Source] pipeline people: " in text
    assert f"{observed.data}/in. Create it" in text
    failed = observed.lineage("FAIL")
    assert str(observed.data) in failed["run"]["facets"]["errorMessage"]["message"]


def test_tasks_triggers_and_the_command_line_find_one_ledger_whatever_names_it(
    observed: Observed, ledgers: NamedLedgers, which: str
) -> None:
    # In the environment and in a backend test_ledger_ways.py looks, which takes less time.
    checked = json.loads(observed.airflow.cli("ckpt", "db", "check", "--ledger", "by_metadata", "-o", "json").stdout)
    state = observed.airflow.wait("which", which)

    assert state == "success", "\n".join(observed.airflow.task_log("which", which, way) for way in ledgers.ids)
    found = {way: observed.airflow.xcom("which", which, way) for way in ledgers.ids}
    assert found == {way: {"task": known, "trigger": known} for way, known in ledgers.ids.items()}
    assert checked["ledger"] == f"SQLite file {ledgers.by_metadata}"
    assert checked["from"] == "connection by_metadata"
