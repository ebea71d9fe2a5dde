"""The task group is drawn as the architecture draws it, and says what each task is."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, TriggerRule

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.policy import Route
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

PIPELINE: dict[str, Any] = {
    "name": "orders",
    "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"},
    "sink": {"type": "postgres", "connection": "warehouse", "table": "orders"},
}


@pytest.fixture
def dag() -> DAG:
    with DAG("replication", schedule=None) as made:
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE)
    return made


def task(dag: DAG, task_id: str) -> Any:
    return dag.get_task(task_id)


def downstream(dag: DAG, name: str) -> set[str]:
    return {found.removeprefix("orders.") for found in task(dag, f"orders.{name}").downstream_task_ids}


def test_route_and_retry_branch_over_the_same_leaves(dag: DAG) -> None:
    leaves = {"done", "dead_letters", "hold"}
    assert downstream(dag, "plan") == {"submit"}
    assert downstream(dag, "submit") == {"settle"}
    assert downstream(dag, "settle") == {"route"}
    assert downstream(dag, "route") == {"retry", *leaves}
    assert downstream(dag, "retry") == leaves
    assert all(downstream(dag, leaf) == set() for leaf in leaves)


def test_a_leaf_runs_if_either_branch_chose_it(dag: DAG) -> None:
    rules = {task(dag, f"orders.{leaf}").trigger_rule for leaf in ("done", "dead_letters", "hold")}
    assert rules == {TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS}


def test_settle_runs_after_a_skipped_submit(dag: DAG) -> None:
    assert task(dag, "orders.settle").trigger_rule == TriggerRule.NONE_FAILED


def test_every_route_has_its_task(dag: DAG) -> None:
    branches = task(dag, "orders.route").branches
    assert branches == {route: f"orders.{route.value}" for route in Route}
    assert set(branches.values()) <= set(dag.task_ids)


def test_it_may_stand_inside_another_group() -> None:
    with DAG("nested", schedule=None) as dag, TaskGroup("shop"):
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE)

    assert "shop.orders.settle" in dag.task_ids
    assert task(dag, "shop.orders.retry").branches[Route.DONE] == "shop.orders.done"


def test_it_can_be_stored_and_shown_by_airflow(dag: DAG) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))

    assert set(stored.task_ids) == set(dag.task_ids)


def test_a_model_a_dict_and_a_path_are_all_declarations() -> None:
    with DAG("declared", schedule=None) as dag:
        CkptReplicationTaskGroup("model", pipeline=build(PIPELINE))
        CkptReplicationTaskGroup("plain", pipeline=PIPELINE)
        CkptReplicationTaskGroup("path", pipeline="pipelines/orders.yaml")

    loaded = [task(dag, f"{group}.plan").load_pipeline() for group in ("model", "plain")]
    assert loaded == [build(PIPELINE), build(PIPELINE)]
    assert task(dag, "path.plan").pipeline == "pipelines/orders.yaml"


def test_retry_defers_where_told() -> None:
    with DAG("deferring", schedule=None) as dag:
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE, deferrable=True)

    assert task(dag, "orders.retry").deferrable is True
