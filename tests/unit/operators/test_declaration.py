"""A declaration in a DAG is checked when its file is parsed, shown on Airflow's pages, and part of the DAG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias

from airflow_provider_ckpt.assets.pipeline import RUNS
from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators.base import CkptOperator
from airflow_provider_ckpt.operators.phases import CkptDrainOperator
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.operators.rewind import CkptRewindOperator
from tests.services.dag_parsing import DagSerialization, dag_bag
from tests.unit.task_groups.test_replication import PIPELINE

YAML = """
name: orders
source: {type: postgres, connection: shop, table: orders, cursor: id}
sink: {type: postgres, connection: warehouse, table: orders}
"""
HEADER = """
from airflow.sdk import DAG, task_group
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup
PIPELINE = {"name": "orders", "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"},
            "sink": {"type": "postgres", "connection": "warehouse", "table": "orders"}}
with DAG("other", schedule=None):
    CkptReplicateOperator(task_id="t", pipeline=PIPELINE)
"""
Parse = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """Parses a DAG file as Airflow does: its DAGs, and what is wrong with it."""

    def parsed(code: str, **files: str) -> tuple[dict[str, Any], str]:
        folder = tmp_path / "dags"
        (folder / "pipelines").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / "pipelines" / f"{name}.yaml").write_text(text)
        (folder / "dags.py").write_text(HEADER + dedent(code))
        bag = dag_bag(folder)
        return bag.dags, "\n".join(bag.import_errors.values())

    return parsed


def single(pipeline: str) -> str:
    return f'with DAG("orders", schedule=None):\n    CkptReplicateOperator(task_id="t", pipeline={pipeline})\n'


def rendered(task: Any, **context: Any) -> Any:
    """A task as Airflow renders it before it runs."""
    made: Any = {"ti": SimpleNamespace(map_index=-1), "task": task, "params": {}, **context}
    task.render_template_fields(made)
    return made


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        ('"pipelines/none.yaml"', "pipelines/none.yaml: cannot be read: No such file or directory"),
        ('"pipelines/wrong.yaml"', "wrong.yaml:5: sinks: unknown key; did you mean sink?"),
        ('{**PIPELINE, "sinks": 1}', "task t: sinks: unknown key; did you mean sink?"),
        ('" "', "task t: pipeline is empty"),
        ("7", "task t: pipeline is 7; give a YAML file's path or a dict"),
    ],
)
def test_what_is_wrong_is_an_import_error_of_its_dag_alone(parse: Parse, pipeline: str, says: str) -> None:
    dags, error = parse(single(pipeline), wrong=YAML + "sinks: 1\n")

    assert says in error
    assert set(dags) == {"other"}


def test_a_file_is_looked_for_beside_the_dag_file_wherever_its_tasks_are_made(parse: Parse) -> None:
    dags, error = parse(
        """
        code = "def make(DAG, task):\\n with DAG('made', schedule=None) as dag: task()\\n return dag"
        factory = {}
        exec(compile(code, "/elsewhere/factory.py", "exec"), factory)
        made = factory["make"](DAG, lambda: CkptReplicateOperator(task_id="t", pipeline="pipelines/orders.yaml"))
        """,
        orders=YAML,
    )

    assert error == ""
    assert set(dags) == {"made", "other"}


def test_a_text_made_of_a_groups_argument_is_one_clear_error(parse: Parse) -> None:
    _, error = parse(
        """
        with DAG("fleet", schedule=None):
            @task_group
            def each(table):
                CkptReplicationTaskGroup("run", pipeline=f"pipelines/{table}.yaml")
            each.expand(table=["orders", "customers"])
        """
    )

    assert "pipeline is a text that contains an argument of a mapped task group" in error
    assert "pass the argument unchanged: pipeline=pipeline" in error
    assert "MappedArgument" not in error


def test_what_a_template_or_a_task_gives_is_not_judged_too_early(parse: Parse) -> None:
    dags, error = parse(
        """
        with DAG("later", schedule=None) as dag:
            CkptReplicateOperator(task_id="a", pipeline="pipelines/{{ params.name }}.yaml")
            CkptReplicateOperator(task_id="b", pipeline={**PIPELINE, "commit_strategy": {"commit_interval": "{{ 7 }}"}})
            @dag.task
            def names():
                return ["pipelines/orders.yaml"]
            CkptReplicateOperator.partial(task_id="c").expand(pipeline=names())
            CkptReplicateOperator(task_id="d", pipeline=names())
        """
    )

    assert error == ""
    assert set(dags) == {"other", "later"}


def test_a_file_with_variables_of_the_workers_is_judged_when_its_task_runs(
    parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = YAML.replace("table: orders}", "table: '${TABLE_OF_ORDERS}'}")

    assert parse(single('"pipelines/orders.yaml"'), orders=text)[1] == ""
    assert "unknown key" in parse(single('"pipelines/orders.yaml"'), orders=YAML + "sinks: '${HOME}'\n")[1]


def test_a_task_that_is_about_to_run_says_itself_what_is_wrong(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "orders")

    dags, error = parse(single('"pipelines/none.yaml"'))

    assert error == ""
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read"):
        dags["orders"].get_task("t").load_pipeline()


@pytest.mark.parametrize("made", ["file", "dict", "model", "conf"])
def test_a_change_of_a_pipeline_is_a_new_version_of_its_dag(parse: Parse, made: str) -> None:
    codes: dict[str, Callable[[str], str]] = {
        "file": lambda _: single('"pipelines/orders.yaml"'),
        "dict": lambda table: single(f'{{**PIPELINE, "name": "{table}"}}'),
        "model": lambda table: (
            "from airflow_provider_ckpt.config.load import build\n"
            + single(f'build({{**PIPELINE, "name": "{table}"}})')
        ),
        "conf": lambda table: single(f'{{**PIPELINE, "run": {{"conf": {{"spark.secret": "{table}"}}}}}}'),
    }
    stored = []
    for table in ("orders", "orders", "customers"):
        dags, _ = parse(codes[made](table), orders=YAML.replace("table: orders", f"table: {table}"))
        stored.append(DagSerialization.to_dict(dags["orders"])["dag"]["tasks"])

    assert stored[0] == stored[1]
    assert stored[1] != stored[2]


FILES = '["pipelines/other.yaml", "pipelines/orders.yaml"]'
MAPPED = {
    "operator": f'CkptReplicateOperator.partial(task_id="t").expand(pipeline={FILES})',
    "arguments": 'CkptReplicateOperator.partial(task_id="t").expand_kwargs([{"pipeline": "pipelines/orders.yaml"}])',
    "other argument": (
        'CkptReplicateOperator.partial(task_id="t", pipeline="pipelines/orders.yaml").expand(ckpt_conn_id=["a", "b"])'
    ),
    "sensor": f'CkptLagSensor.partial(task_id="t").expand(pipeline={FILES})',
    "action": f'CkptDrainOperator.partial(task_id="t", reason="a look").expand(pipeline={FILES})',
    "function": "clean.expand(limit=[1, 2])",
    "function's arguments": 'clean.partial(limit=1).expand_kwargs([{"at": 1}, {"at": 2}])',
    "group": f"each.expand(pipeline={FILES})",
    "group's arguments": 'each.expand_kwargs([{"pipeline": "pipelines/orders.yaml"}])',
    "group's constant": 'all.partial(pipeline="pipelines/orders.yaml").expand(conn=["a", "b"])',
}
MAPPED_HEADER = """
from airflow_provider_ckpt.decorators.batch import ckpt_batch_task
from airflow_provider_ckpt.operators.phases import CkptDrainOperator
from airflow_provider_ckpt.sensors.lag import CkptLagSensor

@ckpt_batch_task(pipeline="pipelines/orders.yaml")
def clean(rows, *, limit, at=0):
    return rows

@task_group
def each(pipeline):
    CkptReplicationTaskGroup("run", pipeline=pipeline)

@task_group
def all(pipeline, conn):
    CkptReplicationTaskGroup("run", pipeline=pipeline, ckpt_conn_id=conn)

def make():
    return DAG("orders", schedule=None)

with make():
    """


@pytest.mark.parametrize("made", MAPPED)
def test_a_change_of_a_file_is_a_new_version_of_a_dag_that_expands_over_it(parse: Parse, made: str) -> None:
    stored = []
    for table in ("orders", "orders", "customers"):
        changed = YAML.replace("table: orders", f"table: {table}")
        dags, error = parse(MAPPED_HEADER + MAPPED[made], orders=changed, other=YAML)
        assert error == ""
        whole = DagSerialization.to_dict(dags["orders"])
        assert DagSerialization.from_dict(whole).task_dict
        stored.append(whole["dag"]["tasks"])

    assert stored[0] == stored[1]
    assert stored[1] != stored[2]


def test_a_file_that_is_wrong_or_missing_among_those_that_a_dag_expands_over_is_part_of_its_version_too(
    parse: Parse,
) -> None:
    expand = (
        'CkptReplicateOperator.partial(task_id="t").expand(pipeline=["pipelines/orders.yaml", "pipelines/none.yaml"])'
    )
    stored = []
    for text in ("name: orders", YAML):
        dags, error = parse(f'with DAG("orders", schedule=None):\n    {expand}', orders=text)
        assert error == ""
        stored.append(DagSerialization.to_dict(dags["orders"])["dag"]["tasks"])

    assert stored[0] != stored[1]


def test_what_another_task_returns_is_no_part_of_a_dags_version(parse: Parse) -> None:
    code = """
from airflow.sdk import task

@task
def listed():
    return ["pipelines/orders.yaml"]

with DAG("orders", schedule=None):
    CkptReplicateOperator.partial(task_id="t").expand(pipeline=listed())
"""
    dags, error = parse(code, orders=YAML)

    assert error == ""
    (stored,) = [
        task["__var"]
        for task in DagSerialization.to_dict(dags["orders"])["dag"]["tasks"]
        if task["__var"]["task_id"] == "t"
    ]
    assert stored.get("declaration") is None


def test_rendered_templates_show_the_document_and_no_value_of_the_engines_configuration(parse: Parse) -> None:
    conf = "run: {conf: {spark.hadoop.fs.s3a.secret.key: hunter2}}\ntransform: {where: \"id <> '{{ x }}'\"}\n"
    dags, _ = parse(single('"pipelines/orders.yaml"'), orders=YAML + conf)
    task = dags["orders"].get_task("t")

    rendered(task)

    document = task.declaration["document"]
    assert (document["name"], document["transform"]["where"]) == ("orders", "id <> '{{ x }}'")
    assert document["run"]["conf"] == {"spark.hadoop.fs.s3a.secret.key": "***"}
    assert "hunter2" not in str(task.declaration)
    assert "declaration" in task.template_fields


def test_a_rendered_path_is_shown_as_the_document_that_it_leads_to(parse: Parse) -> None:
    dags, _ = parse(single('"pipelines/{{ params.name }}.yaml"'), orders=YAML)
    task: Any = dags["orders"].get_task("t")
    before = task.declaration

    rendered(task, params={"name": "orders"})

    assert before is None
    assert task.declaration["document"]["name"] == "orders"


def test_a_mapped_task_is_named_after_its_pipeline() -> None:
    with DAG("fleet", schedule=None):
        task: Any = CkptReplicateOperator(task_id="t", pipeline=PIPELINE)
    alone = rendered(task)
    mapped = rendered(task, ti=SimpleNamespace(map_index=1))
    named = rendered(task, ti=SimpleNamespace(map_index=1), map_index_template="{{ 'mine' }}")

    assert "map_index_template" not in alone
    assert task.get_template_env().from_string(mapped["map_index_template"]).render(mapped) == "orders"
    assert named["map_index_template"] == "{{ 'mine' }}"


def test_a_mapped_task_whose_pipeline_is_wrong_is_named_after_what_declares_it() -> None:
    task: Any = CkptOperator(task_id="t", pipeline="pipelines/none.yaml")
    assert task.pipeline_label == "pipelines/none.yaml"


def test_airflow_knows_which_task_gives_the_events_of_an_asset_and_gives_none_on_its_own(parse: Parse) -> None:
    dags, _ = parse(single('"pipelines/orders.yaml"'), orders=YAML)
    task = dags["orders"].get_task("t")

    assert task.outlets == [RUNS, Asset("ckpt://orders")]
    rendered(task)
    assert task.outlets == [AssetAlias("ckpt")]


def test_a_template_field_is_what_the_author_gave() -> None:
    for given in (PIPELINE, build(PIPELINE), Path("pipelines/orders.yaml"), " "):
        assert CkptOperator(task_id="t", pipeline=given).pipeline is given


def test_airflows_own_dry_run_renders_templates() -> None:
    with DAG("people", schedule=None):
        task = CkptRewindOperator(task_id="t", pipeline="orders", to_position="1", dry_run="{{ params.look }}")
        other = CkptDrainOperator(task_id="d", pipeline="orders", dry_run=True)

    task.dry_run()
    other.dry_run()

    assert (task.is_dry_run, other.is_dry_run) == ("{{ params.look }}", True)
