"""The DAG of a file that declares many tables has two tasks for any number of tables, and opens no connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, Asset

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.dag_factories.databases import database_dag
from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dags
from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from tests.services.dag_parsing import DagSerialization

DATABASE = """
name: {name}
database: {{include: ["public.*"], groups: 3}}
defaults:
  source: {{type: postgres, connection: shop, cursor: id}}
  sink: {{type: postgres, connection: warehouse, table: "{{schema}}.{{table}}"}}
{more}
"""
PIPELINE = """
name: orders
source: {type: postgres, connection: shop, table: orders, cursor: id}
sink: {type: postgres, connection: warehouse, table: orders}
dag: {}
"""
HEAVY = {"pyspark", "pyarrow", "pandas", "psycopg2", "deltalake", "adbc_driver_manager", "confluent_kafka"}
MOST_SECONDS = 0.3
_PARSE = """
import json, socket, sys, time
import airflow.sdk
import airflow_provider_ckpt.dag_factories.pipelines
import airflow_provider_ckpt.task_groups.database
from tests.services.dag_parsing import DagSerialization

def refuse(*_):
    raise AssertionError("something connects")

socket.socket.connect = socket.socket.connect_ex = refuse
before = time.process_time()
dags = airflow_provider_ckpt.dag_factories.pipelines.pipeline_dags(sys.argv[1])
took = time.process_time() - before
tasks = DagSerialization.from_dict(DagSerialization.to_dict(dags["shop"])).task_ids
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"seconds": took, "tasks": sorted(tasks), "loaded": loaded}))
"""


class Folder:
    """A DAG file's folder."""

    def __init__(self, path: Path) -> None:
        self.dag_file = str(path / "dags.py")
        self.pipelines = path / "pipelines"
        self.pipelines.mkdir()

    def declare(self, more: str = "dag: {}", name: str = "shop") -> None:
        (self.pipelines / f"{name}.yaml").write_text(DATABASE.format(name=name, more=more))

    def dags(self) -> dict[str, DAG]:
        return pipeline_dags(self.dag_file)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def task(dag: DAG, name: str) -> Any:
    return dag.get_task(f"replicate.{name}")


def test_a_file_becomes_a_dag_that_looks_and_expands_over_groups(folder: Folder) -> None:
    folder.declare("dag: {schedule: '@hourly', tags: [shop], task_retries: 2, pool: heavy}")
    (folder.pipelines / "orders.yaml").write_text(PIPELINE)

    dags = folder.dags()
    dag: Any = dags["shop"]

    assert dags["orders"].task_ids == ["replicate"]
    assert (dag.schedule, dag.tags, dag.max_active_runs, dag.catchup) == ("@hourly", {"shop"}, 1, False)
    assert set(dag.task_ids) == {"replicate.find_tables", "replicate.tables"}
    assert task(dag, "find_tables").downstream_task_ids == {"replicate.tables"}
    assert (task(dag, "find_tables").database, task(dag, "find_tables").retries) == ("pipelines/shop.yaml", 2)
    tables = task(dag, "tables")
    assert tables.is_mapped
    assert (tables.retries, tables.partial_kwargs["pool"]) == (2, "heavy")
    assert set(DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_ids) == set(dag.task_ids)


@pytest.mark.parametrize(
    ("more", "schedule"),
    [("dag: {every: 10m}", timedelta(minutes=10)), ("dag: {assets: ['ckpt://a']}", [Asset("ckpt://a")])],
)
def test_it_runs_when_the_section_says(folder: Folder, more: str, schedule: object) -> None:
    folder.declare(more)

    assert folder.dags()["shop"].schedule == schedule


def test_one_file_may_be_named_and_needs_no_section(folder: Folder) -> None:
    folder.declare("")

    assert folder.dags() == {}
    assert database_dag(folder.dag_file, "pipelines/shop.yaml", default_args={"retries": 4}).schedule is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("dag: {work: {}}", "shop.yaml:7: dag: work has no effect for many tables; leave it out"),
        ("dag: {shape: operator}", "shop.yaml:7: dag: shape has no effect for many tables; leave it out"),
        ("dag: {schedule: soon}", "shop.yaml: dag.schedule: 'soon' is not a schedule"),
        ("dag: {}\ntable: {}", "shop.yaml:8: table: unknown key; did you mean tables?"),
    ],
)
def test_an_invalid_file_is_a_dag_that_fails_with_its_error(folder: Folder, more: str, says: str) -> None:
    folder.declare(more)

    broken = folder.dags()["shop"]
    failing: Any = broken.get_task("replicate")

    with pytest.raises(ConfigError):
        database_dag(folder.dag_file, "pipelines/shop.yaml")
    assert "broken" in broken.tags
    with pytest.raises(AirflowFailException) as error:
        failing.execute({})
    assert says in str(error.value)


def test_a_file_in_flow_style_is_recognized(folder: Folder) -> None:
    document = {
        "name": "shop",
        "database": {"include": ["*"]},
        "defaults": {"source": {"type": "postgres"}},
        "dag": {},
    }
    (folder.pipelines / "shop.yaml").write_text(f"# JSON\n{json.dumps(document)}")

    assert set(folder.dags()["shop"].task_ids) == {"replicate.find_tables", "replicate.tables"}


def test_the_recovery_dag_does_not_offer_the_file_as_a_pipeline(folder: Folder) -> None:
    folder.declare()
    (folder.pipelines / "orders.yaml").write_text(PIPELINE)

    found: Any = recovery_dag(pipelines=folder.pipelines).params.get_param("pipeline").schema["enum"]

    assert found == ["orders"]


def test_parsing_1000_tables_is_quick_connects_to_nothing_and_loads_nothing_heavy(folder: Folder) -> None:
    tables = "".join(f"  public.t{number:04}: {{source: {{cursor: updated_at}}}}\n" for number in range(1_000))
    folder.declare(f"dag: {{}}\ntables:\n{tables}")

    parse = [sys.executable, "-c", _PARSE, folder.dag_file]
    done = subprocess.run(parse, capture_output=True, text=True, env=os.environ, check=False)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tasks"] == ["replicate.find_tables", "replicate.tables"]
    assert not HEAVY & set(found["loaded"])
    assert found["seconds"] <= MOST_SECONDS
