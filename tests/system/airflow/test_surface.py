"""Operators, sensors and assets with a real scheduler and triggerer: a mapped group, a Python function, a watcher."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.services.airflow import AirflowServices
from tests.system.airflow.deployment import PATIENCE, Deployment

_PIPELINE = """
name: {name}
source: {{type: files, path: "{data}/{name}"}}
transform: {{decode: json, schema: id int, {transform}}}
sink: {{type: files, path: "{data}/out/{name}", format: jsonl}}
run: {{conf: {{spark.master: "local[3]"}}}}
{more}
"""
_COPY = "select: {id: id}"
_PIPELINES = {
    "mixed": (_COPY, ""),
    "empty": (_COPY, ""),
    "own": ("python: task, returns: 'id int, double bigint'", ""),
    "watched": (_COPY, "dag: {work: {at_least: 20, check_every: 1s}, shape: task_group}"),
    "later": (_COPY, ""),
}
_DAGS = """
import hashlib
import os

from airflow.sdk import DAG, Asset, task, task_group

from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dags
from airflow_provider_ckpt.operators.phases import CkptDrainOperator, CkptResumeOperator
from airflow_provider_ckpt.operators.replay_dead_letters import CkptReplayDeadLettersOperator
from airflow_provider_ckpt.sensors.attention import CkptDeadLettersSensor
from airflow_provider_ckpt.sensors.lag import CkptLagSensor
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

UNLUCKY = 3

with DAG("fleet", schedule=None):

    @task_group
    def each(pipeline):
        CkptReplicationTaskGroup("run", pipeline=pipeline)

    @task
    def after():
        return {"it": "ran"}

    each.expand(pipeline=["pipelines/empty.yaml", "pipelines/mixed.yaml"]) >> after()

with DAG("own", schedule=None):

    @task.ckpt_batch(pipeline="pipelines/own.yaml")
    def double(rows, *, by):
        import pyarrow as pa

        ids = rows.column("id").to_pylist()
        if UNLUCKY in ids:
            raise ValueError(f"{UNLUCKY} is unlucky")
        return pa.table({"id": ids, "double": [n * by for n in ids], "_keep": [n != 5 for n in ids]})

    double(by=2)

with DAG("follower", schedule=[Asset("ckpt://own")]):

    @task
    def told(triggering_asset_events=None):
        return [event.extra for event in triggering_asset_events[Asset("ckpt://own")]]

    told()

with DAG("care", schedule=None, params={"pipeline": "own", "dry_run": True}):
    given = {"pipeline": "{{ params.pipeline }}"}
    (
        CkptDeadLettersSensor(task_id="parked", **given, deferrable=True, poke_interval=1)
        >> CkptReplayDeadLettersOperator(task_id="replay", **given, dry_run="{{ params.dry_run }}", stop_at=1)
        >> CkptDrainOperator(task_id="drain", **given, reason="a look at {{ params.pipeline }}")
        >> CkptResumeOperator(task_id="resume", **given)
    )

with DAG("warm", schedule=None):

    @task
    def key():
        from airflow_provider_ckpt.engines.connect_session import session_key

        return {"process": os.getpid(), "digest": hashlib.sha256(session_key()).hexdigest()}

    key()

with DAG("patient", schedule=None):
    CkptLagSensor(task_id="work", pipeline="pipelines/later.yaml", at_least=1, deferrable=True, poke_interval=1)

globals().update(pipeline_dags(__file__))
"""


@dataclass
class Surface:
    """The DAGs of these tests, in the Airflow that all share.

    :param data: a folder for each pipeline's input, and ``out``
    """

    deployment: Deployment
    data: Path

    @property
    def airflow(self) -> AirflowServices:
        return self.deployment.airflow

    def bring(self, name: str, ids: range, damaged: int = 0) -> None:
        """A file of JSON lines that appears all at once."""
        aside = self.data / f"{name}-{ids.start}.jsonl"
        aside.write_text("".join(f'{{"id": {number}}}\n' for number in ids) + '{"id": 1\n' * damaged)
        aside.rename(self.data / name / aside.name)

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """All runs of a DAG, oldest first."""
        found: list[dict[str, Any]] = self.airflow.api("GET", f"/dags/{dag_id}/dagRuns?order_by=id")["dag_runs"]
        return found

    def known(self, dag_id: str) -> None:
        """Wait until Airflow has parsed a DAG that nobody triggers."""
        self.airflow.until(
            lambda: bool(self.airflow.api("GET", f"/dags?dag_id_pattern={dag_id}")["dags"]),
            PATIENCE,
            f"no DAG {dag_id}",
        )

    def ran(self, dag_id: str, times: int) -> str:
        """Wait until a DAG has run so many times, and to the end of the newest; its id."""
        self.airflow.until(lambda: len(self.runs(dag_id)) >= times, PATIENCE, f"{dag_id} did not run {times} times")
        run_id: str = self.runs(dag_id)[-1]["dag_run_id"]
        self.deployment.succeeds(dag_id, run_id)
        return run_id

    def instances(self, run_id: str, task: str) -> list[dict[str, Any]]:
        """The instances of a task of the expanded group, in order."""
        path = f"/dags/fleet/dagRuns/{quote(run_id)}/taskInstances?limit=100"
        found = self.airflow.api("GET", path)["task_instances"]
        mine = [item for item in found if item["task_id"] == f"each.run.{task}"]
        return sorted(mine, key=lambda item: int(item["map_index"]))

    def mapped(self, run_id: str, task: str) -> dict[int, str]:
        """The states of a task of the expanded group, by map index."""
        return {item["map_index"]: item["state"] for item in self.instances(run_id, task)}

    def written(self, name: str) -> list[dict[str, Any]]:
        """Return the records that the pipeline has delivered."""
        files = sorted((self.data / "out" / name).glob("ckpt-*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return sorted(lines, key=lambda line: int(line["id"]))


@pytest.fixture(scope="module")
def surface(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Surface:
    """Brings the DAGs into the folder that Airflow watches."""
    data = tmp_path_factory.mktemp("surface")
    folder = deployment.dags / "surface"  # one level deeper than the declarations that `replication.py` makes DAGs of
    (folder / "pipelines").mkdir(parents=True)
    for name, (transform, more) in _PIPELINES.items():
        (data / name).mkdir()
        text = _PIPELINE.format(name=name, data=data, transform=transform, more=more)
        (folder / "pipelines" / f"{name}.yaml").write_text(text)
    (folder / "pipelines" / "damaged.yaml").write_text("name: damaged\ndag: {schedule: '@daily'}\nsinks: 1\n")
    (folder / "surface.py").write_text(_DAGS)
    return Surface(deployment, data)


def test_each_member_of_an_expanded_group_goes_its_own_way(surface: Surface) -> None:
    surface.bring("mixed", range(5), damaged=1)

    run_id = surface.deployment.run("fleet")

    expected = {
        "plan": ("success", "success"),
        "submit": ("skipped", "success"),
        "settle": ("success", "success"),
        "route": ("success", "success"),
        "retry": ("skipped", "skipped"),
        "done": ("success", "success"),
        "dead_letters": ("skipped", "success"),
        "hold": ("skipped", "skipped"),
        "summary": ("success", "success"),
    }
    found = {task: surface.mapped(run_id, task) for task in expected}
    assert {task: (states[0], states[1]) for task, states in found.items()} == expected
    assert surface.airflow.xcom("fleet", run_id, "after") == {"it": "ran"}
    path = f"/dags/fleet/dagRuns/{quote(run_id)}/taskInstances/each.run.summary/xcomEntries/return_value"
    handed = [surface.airflow.api("GET", f"{path}?map_index={index}&deserialize=true")["value"] for index in (0, 1)]
    assert [item["pipeline"] for item in handed] == ["empty", "mixed"]
    assert [item["records"]["read"] for item in handed] == [0, 6]
    plans = surface.instances(run_id, "plan")
    assert [plan["rendered_map_index"] for plan in plans] == ["empty", "mixed"]
    shown = [plan["rendered_fields"]["declaration"]["document"]["name"] for plan in plans]
    assert shown == ["empty", "mixed"]
    assert [line["id"] for line in surface.written("mixed")] == [0, 1, 2, 3, 4]
    with surface.deployment.ledger() as ledger:
        assert not any(ledger.status(name)["lease"]["held"] for name in ("empty", "mixed"))


def test_a_function_of_the_dag_file_transforms_and_a_follower_hears_of_it_once(surface: Surface) -> None:
    surface.known("follower")
    surface.bring("own", range(8))

    run_id = surface.deployment.run("own")

    assert surface.written("own") == [{"id": n, "double": 2 * n} for n in (0, 1, 2, 4, 6, 7)]
    summary = surface.airflow.xcom("own", run_id, "double")
    assert summary["records"] == {"read": 8, "delivered": 6, "filtered": 1, "dead_lettered": 1, "retried": 0}
    assert summary["errors"] == {"Processing": 1}
    links = surface.airflow.api("GET", f"/dags/own/dagRuns/{quote(run_id)}/taskInstances/double/links")
    assert links["extra_links"]["Pipeline"].endswith("/assets?name_pattern=ckpt%3A%2F%2Fown")

    (asset,) = surface.airflow.api("GET", "/assets?uri_pattern=ckpt://own")["assets"]
    assert [(task["dag_id"], task["task_id"]) for task in asset["producing_tasks"]] == [("own", "double")]

    follower = surface.ran("follower", 1)
    (extra,) = surface.airflow.xcom("follower", follower, "told")
    assert {name: extra[name] for name in ("pipeline", "epoch", "generation", "run", "checkpoint")} == {
        name: summary[name] for name in ("pipeline", "epoch", "generation", "run", "checkpoint")
    }

    again = surface.deployment.run("own")
    assert surface.airflow.xcom("own", again, "double")["spark_started"] is False
    assert len(surface.airflow.api("GET", "/assets/events?source_dag_id=own")["asset_events"]) == 1

    cared = surface.deployment.run("care")
    assert surface.airflow.xcom("care", cared, "parked")["dead_letters"] == {"Processing": 1}
    replay = surface.airflow.xcom("care", cared, "replay")
    assert (replay["applied"], replay["dry_run"], replay["records"]) == (False, True, 1)
    user = surface.runs("care")[0]["triggering_user_name"]
    ((drain,), (resume,)) = surface.deployment.events("own", "drain"), surface.deployment.events("own", "resume")
    assert user
    assert drain["actor"] == resume["actor"] == f"airflow:{user}"
    assert drain["detail"]["reason"] == "a look at own"
    assert drain["detail"]["after"]["phase"] == "draining"


def test_a_pipeline_runs_when_there_is_enough_to_do_and_not_again(surface: Surface) -> None:
    surface.known("watched")

    surface.bring("watched", range(4))

    surface.ran("watched", 1)
    assert [line["id"] for line in surface.written("watched")] == [0, 1, 2, 3]
    time.sleep(3)  # the watcher looks every second
    assert len(surface.runs("watched")) == 1


def test_a_damaged_declaration_fails_under_its_own_name_and_nobody_elses(surface: Surface) -> None:
    surface.known("watched")
    run_id = surface.deployment.begin("damaged")

    assert surface.airflow.wait("damaged", run_id) == "failed"

    log = surface.airflow.task_log("damaged", run_id, "replicate")
    assert "damaged.yaml:3: sinks: unknown key; did you mean sink?" in log
    dag = surface.airflow.api("GET", "/dags/damaged/details")
    assert "sinks: unknown key" in dag["doc_md"]
    assert {tag["name"] for tag in dag["tags"]} == {"ckpt", "broken"}
    assert surface.airflow.import_errors() == ""


def test_a_sensor_waits_in_the_triggerer_until_there_is_work(surface: Surface) -> None:
    run_id = surface.deployment.begin("patient")
    surface.deployment.reaches("patient", run_id, "work", "deferred")

    surface.bring("later", range(2))

    surface.deployment.succeeds("patient", run_id)
    assert surface.airflow.xcom("patient", run_id, "work")["total"] == 20


def test_all_tasks_make_the_ids_of_spark_connect_sessions_with_the_same_key_so_that_runs_share_one(
    surface: Surface,
) -> None:
    keys = [surface.airflow.xcom("warm", surface.deployment.run("warm"), "key") for _ in range(2)]

    assert keys[0]["process"] != keys[1]["process"]
    assert keys[0]["digest"] == keys[1]["digest"]
