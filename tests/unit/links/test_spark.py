"""A task links to the pages of its Spark application: to Spark's UI while it runs, then to the history server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.replication.run.engine_protocol import EngineInfo
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup
from tests.unit.task_groups.test_replication import PIPELINE

KEY: Any = None


def test_while_spark_runs_the_task_leads_to_its_ui() -> None:
    task = CkptReplicateOperator(task_id="t", pipeline=PIPELINE)
    pushed: dict[str, str] = {}
    task._ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))

    task._show_spark(EngineInfo(4, [], "http://driver:4040", "app-1"))

    assert pushed == {SparkLink().xcom_key: "http://driver:4040"}


@pytest.mark.parametrize(
    ("history", "application", "leads_to"),
    [
        ("https://spark.example.com/logs/", "app-1", "https://spark.example.com/logs/history/app-1/"),
        ("https://spark.example.com", None, ""),
        ("", "app-1", ""),
    ],
)
def test_afterwards_it_leads_to_the_history_server_if_there_is_something_to_see(
    monkeypatch: pytest.MonkeyPatch, history: str, application: str | None, leads_to: str
) -> None:
    monkeypatch.setenv("AIRFLOW__CKPT__SPARK_HISTORY_URL", history)
    task = CkptReplicateOperator(task_id="t", pipeline=PIPELINE)
    task._show_spark(EngineInfo(4, [], None, application))

    assert SparkLink().get_link(task, ti_key=KEY) == leads_to


def test_the_tasks_that_start_spark_have_the_link() -> None:
    with DAG("links", schedule=None) as dag:
        CkptReplicationTaskGroup("run", pipeline=PIPELINE)

    having = {
        task.task_id for task in dag.tasks if any(isinstance(link, SparkLink) for link in task.operator_extra_links)
    }
    assert having == {"run.submit", "run.retry"}
