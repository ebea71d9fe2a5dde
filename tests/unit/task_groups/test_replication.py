"""The task group has the tasks and edges of the documented architecture, and describes each task."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, TaskGroup, TriggerRule

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.routes import Route
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
    assert all(downstream(dag, leaf) == {"summary"} for leaf in leaves)
    assert downstream(dag, "summary") == set()


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
    from tests.services.dag_parsing import DagSerialization

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


def test_what_stands_behind_the_group_waits_for_one_task_that_runs_whatever_was_chosen(dag: DAG) -> None:
    with dag:
        dag.task_group.children["orders"] >> EmptyOperator(task_id="after")

    assert task(dag, "after").upstream_task_ids == {"orders.summary"}
    assert task(dag, "orders.summary").trigger_rule == TriggerRule.NONE_FAILED


@pytest.mark.parametrize("of", ["dag", "group"])
def test_default_arguments_name_the_ledger_and_the_way_to_wait(of: str) -> None:
    given: dict[str, Any] = {"default_args": {"ckpt_conn_id": "elsewhere", "deferrable": True}}
    with DAG("defaults", schedule=None, **(given if of == "dag" else {})) as dag:
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE, **(given if of == "group" else {}))

    ours = set(dag.task_ids) - {"orders.done"}
    assert {name: task(dag, name).ckpt_conn_id for name in ours} == dict.fromkeys(ours, "elsewhere")
    assert task(dag, "orders.retry").deferrable is True


def test_an_argument_of_the_group_goes_before_a_default() -> None:
    with DAG("defaults", schedule=None, default_args={"ckpt_conn_id": "elsewhere", "pool": "slow"}) as dag:
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE, ckpt_conn_id="here", pool="quick")

    assert {made.pool for made in dag.tasks} == {"quick"}
    assert task(dag, "orders.submit").ckpt_conn_id == "here"


def test_arguments_of_tasks_reach_every_task_of_the_group() -> None:
    of_tasks: dict[str, Any] = {
        "pool": "spark",
        "pool_slots": 2,
        "queue": "big",
        "priority_weight": 7,
        "retries": 4,
        "retry_delay": timedelta(seconds=9),
        "execution_timeout": timedelta(hours=1),
        "owner": "ada",
        "depends_on_past": True,
    }
    with DAG("arguments", schedule=None) as dag:
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE, tooltip="of the group", **of_tasks)

    assert {name: {getattr(made, name) for made in dag.tasks} for name in of_tasks} == {
        name: {value} for name, value in of_tasks.items()
    }
    group: Any = dag.task_group.children["orders"]
    assert group.tooltip == "of the group"


def test_when_the_group_starts_and_what_it_brings_are_said_of_its_first_and_last_task() -> None:
    asset = Asset("x://orders")
    with DAG("ends", schedule=None) as dag:
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE, trigger_rule="all_done", outlets=[asset])

    assert task(dag, "orders.plan").trigger_rule == TriggerRule.ALL_DONE
    assert task(dag, "orders.route").trigger_rule == TriggerRule.ALL_SUCCESS
    assert [made.task_id for made in dag.tasks if asset in made.outlets] == ["orders.summary"]


def test_an_argument_that_nobody_knows_is_refused() -> None:
    with DAG("unknown", schedule=None), pytest.raises(TypeError, match="'orders': unknown arguments: pools"):
        CkptReplicationTaskGroup("orders", pipeline=PIPELINE, pools="spark")
