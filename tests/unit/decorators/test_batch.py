"""``@task.ckpt_batch``: errors when the DAG is parsed, and the function that it passes to the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, task

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.setup import PipelineContext
from airflow_provider_ckpt.spark.transform.python_function import unpack
from tests.unit.task_groups.test_replication import PIPELINE

OWN = {**PIPELINE, "transform": {"python": "task", "returns": "id bigint"}}


def scaled(rows: pa.Table, *, by: int = 1) -> pa.Table:
    return pa.table({"id": [n * by for n in rows.column("id").to_pylist()]})


def decorated(function: Any = scaled, pipeline: Any = OWN, **arguments: Any) -> Any:
    with DAG("own", schedule=None) as dag:
        task.ckpt_batch(pipeline=pipeline, task_id="own")(function)(**arguments)
    return dag.get_task("own")


def function_of(made: Any) -> Any:
    context: Any = {
        "dag_run": SimpleNamespace(dag_id="own", run_id="one"),
        "params": {"by": 3},
        "ti": SimpleNamespace(map_index=-1),
    }
    made.render_template_fields(context)
    return unpack(made.setup(context, object(), made.load_pipeline()).function)


def test_airflow_finds_it_by_its_name() -> None:
    assert decorated().custom_operator_name == "@task.ckpt_batch"
    assert set(decorated().template_fields) >= {"pipeline", "op_kwargs"}


def test_the_runs_setup_has_the_function_with_its_arguments_bound() -> None:
    rows = pa.table({"id": [1, 2]})

    assert function_of(decorated())(rows).to_pydict() == {"id": [1, 2]}
    assert function_of(decorated(by=2))(rows).to_pydict() == {"id": [2, 4]}


def test_arguments_may_be_templates() -> None:
    def told(rows: pa.Table, *, by: str) -> str:
        return by * 2

    assert function_of(decorated(told, by="{{ params.by }}"))(None) == "33"


def test_a_pipeline_that_does_not_ask_for_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Write transform\.python: task"):
        decorated(pipeline=PIPELINE).load_pipeline()


def test_a_function_without_rows_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(ConfigError, match="must take the rows as its first argument"):
        decorated(lambda: None)


def test_an_argument_that_it_does_not_take_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'per'"):
        decorated(per=3)


def test_nothing_but_its_task_runs_such_a_pipeline() -> None:
    with pytest.raises(ConfigError, match=r"Run the DAG whose @task\.ckpt_batch defines it"):
        _ = PipelineContext(build(OWN), object(), lambda _: None, "me").packed_function  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        ({"python": "task"}, "python and returns require each other"),
        ({"returns": "id bigint"}, "python and returns require each other"),
        ({"python": "not a name", "returns": "id bigint"}, "write module:function, or task"),
    ],
)
def test_a_declaration_that_is_not_whole_is_refused(transform: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build({**PIPELINE, "transform": transform})
