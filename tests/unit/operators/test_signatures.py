"""All operators, sensors and task groups name their arguments; Airflow can still set defaults, map and check them."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_ckpt.decorators.batch import CkptBatchOperator
from airflow_provider_ckpt.operators.batches import CkptReleaseOperator
from airflow_provider_ckpt.operators.phases import CkptDrainOperator
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.operators.retry import CkptRetryOperator
from airflow_provider_ckpt.operators.rewind import CkptRewindOperator
from airflow_provider_ckpt.provider_info import get_provider_info
from airflow_provider_ckpt.sensors.lag import CkptLagSensor
from airflow_provider_ckpt.task_groups.database import CkptDatabaseTaskGroup
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

INFO = get_provider_info()


def classes() -> list[type]:
    """All operators and sensors of the provider, and the task groups."""
    modules = [name for kind in ("operators", "sensors") for item in INFO[kind] for name in item["python-modules"]]
    found = [
        item
        for module in modules
        for name, item in vars(import_module(module)).items()
        if isinstance(item, type) and item.__module__ == module and name.startswith("Ckpt")
    ]
    return [*found, CkptBatchOperator, CkptReplicationTaskGroup, CkptDatabaseTaskGroup]


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_every_argument_is_named_typed_and_documented(cls: type) -> None:
    arguments = dict(inspect.signature(cls).parameters)
    text = inspect.getdoc(cls) or ""

    assert {"ckpt_conn_id", "kwargs"} < arguments.keys()
    assert {"pipeline", "preview", "database"} & arguments.keys()
    assert [name for name, argument in arguments.items() if argument.annotation is argument.empty] == []
    assert [name for name in arguments if f":param {name}:" not in text] == []


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_no_argument_is_documented_that_does_not_exist(cls: type) -> None:
    documented = {line.split()[1].rstrip(":") for line in (inspect.getdoc(cls) or "").splitlines() if ":param " in line}

    assert documented <= inspect.signature(cls).parameters.keys()


def test_default_args_fill_what_is_not_given() -> None:
    defaults = {"ckpt_conn_id": "other", "deferrable": True, "reason": "cleaning", "pipeline": "orders"}
    with DAG("shop", schedule=None, default_args=defaults):
        rewind = CkptRewindOperator(task_id="rewind", to_position=3)  # type: ignore[call-arg]
        drain = CkptDrainOperator(task_id="drain", reason="moving", ckpt_conn_id="mine")  # type: ignore[call-arg]
        lag = CkptLagSensor(task_id="lag", at_most=0)  # type: ignore[call-arg]

    assert (rewind.pipeline, rewind.ckpt_conn_id, rewind.reason) == ("orders", "other", "cleaning")
    assert (drain.ckpt_conn_id, drain.reason) == ("mine", "moving")
    assert (lag.pipeline, lag.ckpt_conn_id, lag.deferrable) == ("orders", "other", True)


def test_default_args_reach_the_tasks_of_a_group() -> None:
    with DAG("shop", schedule=None, default_args={"ckpt_conn_id": "other", "deferrable": True}) as dag:
        CkptReplicationTaskGroup("replicate", pipeline="{{ params.pipeline }}")

    retry = dag.get_task("replicate.retry")
    assert isinstance(retry, CkptRetryOperator)
    assert (retry.ckpt_conn_id, retry.deferrable) == ("other", True)


@pytest.mark.parametrize(
    ("cls", "partial", "expanded"),
    [
        (CkptReplicateOperator, {"ckpt_conn_id": "other"}, {"pipeline": ["a.yaml", "b.yaml"]}),
        (CkptReleaseOperator, {"pipeline": "orders", "reason": "mended"}, {"batches": [["t#0"], ["t#1"]]}),
        (CkptLagSensor, {"pipeline": "orders", "deferrable": True}, {"at_most": [0, 10]}),
    ],
)
def test_an_argument_can_be_mapped(cls: Any, partial: dict[str, Any], expanded: dict[str, list[Any]]) -> None:
    with DAG("shop", schedule=None):
        mapped = cls.partial(task_id="mapped", **partial).expand(**expanded)
        task = mapped.unmap({name: values[1] for name, values in expanded.items()})

    assert {name: getattr(task, name) for name in partial} == partial
    assert {name: getattr(task, name) for name in expanded} == {name: values[1] for name, values in expanded.items()}


def test_an_unknown_argument_is_refused() -> None:
    with DAG("shop", schedule=None):
        with pytest.raises(TypeError, match="pipe_line"):
            CkptReplicateOperator(task_id="replicate", pipeline="orders.yaml", pipe_line="orders.yaml")
        with pytest.raises(TypeError, match="pipe_line"):
            CkptReplicateOperator.partial(task_id="mapped", pipe_line="orders.yaml").expand(pipeline=["orders.yaml"])
        with pytest.raises(TypeError, match="pipeline"):
            CkptReplicateOperator(task_id="replicate")  # type: ignore[call-arg]
