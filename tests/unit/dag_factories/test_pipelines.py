"""DAGs of YAML files: the effects of the section ``dag``, and the messages for invalid files."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, Asset
from airflow.sdk.definitions._internal.contextmanager import DagContext

from airflow_provider_ckpt.config import document
from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.dag_factories import pipelines
from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dag, pipeline_dags
from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from airflow_provider_ckpt.triggers.start_on_lag import CkptWorkTrigger
from tests.services.dag_parsing import DagSerialization

PIPELINE = """
name: {name}
source: {{type: postgres, connection: shop, table: orders, cursor: id}}
sink: {{type: postgres, connection: warehouse, table: orders}}
{more}
"""


class Folder:
    """A DAG file's folder."""

    def __init__(self, path: Path) -> None:
        self.dag_file = str(path / "dags.py")
        self._pipelines = path / "pipelines"
        self._pipelines.mkdir()

    def declare(self, name: str, more: str = "", file: str | None = None) -> None:
        (self._pipelines / (file or f"{name}.yaml")).write_text(PIPELINE.format(name=name, more=more))

    def dags(self) -> dict[str, DAG]:
        return pipeline_dags(self.dag_file)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_file_becomes_a_dag_of_one_task(folder: Folder) -> None:
    times = "schedule: '*/10 * * * *', start_date: 2026-01-01"
    folder.declare("orders", f"dag: {{{times}, tags: [shop], owner: sales, task_retries: 2}}")

    dag = folder.dags()["orders"]

    assert dag.task_ids == ["replicate"]
    task: Any = dag.get_task("replicate")
    assert (task.pipeline, task.owner, task.retries) == ("pipelines/orders.yaml", "sales", 2)
    assert dag.start_date == datetime(2026, 1, 1, tzinfo=UTC)
    assert (dag.tags, dag.catchup, dag.max_active_runs) == ({"shop"}, False, 1)
    dag.fileloc = folder.dag_file
    assert task.load_pipeline().name == "orders"


def test_what_bounds_its_tasks_comes_from_the_file_or_for_all_files_from_the_dag_file(folder: Folder) -> None:
    own = "pool: heavy, pool_slots: 2, priority_weight: 5, queue: big, execution_timeout: 2h"
    folder.declare("own", f"dag: {{{own}}}")
    folder.declare("grouped", "dag: {shape: task_group, owner: sales}")
    given = {"pool": "replication", "owner": "data", "retries": 3, "execution_timeout": timedelta(hours=1)}

    dags = pipeline_dags(folder.dag_file, default_args=given)
    alone = pipeline_dag(folder.dag_file, "pipelines/own.yaml", default_args=given)

    for dag in (dags["own"], alone):
        task: Any = dag.get_task("replicate")
        bounds = (task.pool, task.pool_slots, task.priority_weight, task.queue, task.execution_timeout)
        assert bounds == ("heavy", 2, 5, "big", timedelta(hours=2))
        assert (task.owner, task.retries) == ("data", 3)
    for task in dags["grouped"].tasks:
        assert (task.pool, task.pool_slots, task.owner, task.retries) == ("replication", 1, "sales", 3)
    (unbounded,) = folder.dags()["own"].tasks
    assert unbounded.retries == 0


def test_or_a_task_group(folder: Folder) -> None:
    folder.declare("orders", "dag: {dag_id: shop.orders, shape: task_group, deferrable: true}")

    dag = folder.dags()["shop.orders"]

    assert {"replicate.plan", "replicate.retry"} <= set(dag.task_ids)
    retry: Any = dag.get_task("replicate.retry")
    assert retry.deferrable is True


def test_a_file_without_a_section_is_left_to_others_and_may_be_named(folder: Folder) -> None:
    folder.declare("orders")

    assert folder.dags() == {}
    assert pipeline_dag(folder.dag_file, "pipelines/orders.yaml").schedule is None


@pytest.mark.parametrize(
    ("more", "schedule"),
    [
        ("dag: {schedule: '@hourly'}", "@hourly"),
        ("dag: {every: 10m}", timedelta(minutes=10)),
        ("dag: {assets: ['ckpt://customers']}", [Asset("ckpt://customers")]),
        ("dag: {}", None),
    ],
)
def test_it_runs_when_the_section_says(folder: Folder, more: str, schedule: object) -> None:
    folder.declare("orders", more)

    assert folder.dags()["orders"].schedule == schedule


def test_it_may_run_when_there_is_enough_to_do(folder: Folder) -> None:
    folder.declare("orders", "dag: {work: {at_least: 500, longest_wait: 15m, check_every: 5}}")

    asset: Any = folder.dags()["orders"].schedule
    (watcher,) = asset.watchers

    _, kept = watcher.trigger.serialize()
    assert isinstance(watcher.trigger, CkptWorkTrigger)
    assert kept["pipeline"]["name"] == "orders"
    assert (kept["at_least"], kept["longest_wait"], kept["every"]) == (500, 900, 5)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("dag: {schedules: '@hourly'}", "orders.yaml:5: dag.schedules: unknown key; did you mean schedule?"),
        ("dag: {schedule: soon}", "orders.yaml: dag.schedule: 'soon' is not a schedule; write a cron expression"),
        ("dag: {schedule: '@daily', every: 1h}", "orders.yaml:5: dag: has schedule and every; give only one schedule"),
        ("dag: {shape: group}", "'group' is not supported; supported: operator, task_group"),
        ("dag: {assets: [customers]}", "an asset is named by its URI, such as ckpt://orders"),
        ("dag: {every: 0s}", "orders.yaml:5: dag: every must be longer than 0s"),
        ("dag: {pool: ''}", "orders.yaml:5: dag.pool: string should have at least 1 character"),
        ("dag: {pool_slots: 0}", "orders.yaml:5: dag.pool_slots: must be at least 1"),
        ("dag: {execution_timeout: 0s}", "orders.yaml:5: dag: execution_timeout must be longer than 0s"),
        ("dag: {pools: a}", "orders.yaml:5: dag.pools: unknown key; did you mean pool?"),
        ("dag: {work: {check_every: 0s}}", "orders.yaml:5: dag.work: check_every must be at least 1s"),
        ("dag: {work: {at_least: 0}}", "orders.yaml:5: dag.work.at_least: must be at least 1"),
        ("dag: {}\ntransform: {python: task, returns: id bigint}", "write that DAG file with @task.ckpt_batch"),
        ("dag: {start_date: someday}", "dag.start_date"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_key(folder: Folder, more: str, says: str) -> None:
    folder.declare("orders", more)

    dag = folder.dags()["orders"]

    assert says in str(dag.doc_md)
    with pytest.raises(AirflowFailException) as caught:
        run(dag)
    assert says in str(caught.value)
    with pytest.raises(ConfigError) as alone:
        pipeline_dag(folder.dag_file, "pipelines/orders.yaml")
    assert says in str(alone.value)


def run(dag: DAG) -> None:
    """Run the one task of a DAG."""
    (task,) = dag.tasks
    task.execute({})  # type: ignore[union-attr]


def test_files_that_are_wrong_cost_their_own_dags_alone_and_stay_visible(folder: Folder) -> None:
    folder.declare("a", "dag: {shape: x}")
    folder.declare("b", "dag: {owner: [x], dag_id: shop.b, schedule: '@hourly'}")
    folder.declare("c", "dag: {}")
    folder.declare("c", "dag: {}", file="cc_again.yml")
    folder.declare("d", "dag: {schedule: '@daily'}\nsinks: 1")
    folder.declare("e", "sinks: 1")
    folder.declare("f", "dag: {", file="f.yaml")
    folder.declare("a name", "dag: {}", file="g.yaml")

    dags: dict[str, Any] = folder.dags()

    assert {name: (dag.schedule, "broken" in dag.tags) for name, dag in dags.items()} == {
        "a": (None, True),
        "shop.b": (None, True),
        "broken_cc_again.yml": (None, True),
        "c": (None, False),
        "d": ("@daily", True),
        "broken_e.yaml": (None, True),
        "broken_f.yaml": (None, True),
        "broken_g.yaml": (None, True),
    }
    for name, dag in dags.items():
        if name != "c":
            with pytest.raises(AirflowFailException, match=r"/pipelines/"):
                run(dag)


def test_a_file_that_cannot_even_be_read_costs_its_own_dag_alone(folder: Folder) -> None:
    folder.declare("good", "dag: {}")
    files = Path(folder.dag_file).parent / "pipelines"
    (files / "bytes.yaml").write_bytes(b"name: \xff")
    (files / "empty.yaml").write_text("")
    (files / "folder.yaml").mkdir()
    (files / "gone.yaml").symlink_to("nowhere")
    (files / "list.yaml").write_text("- 1")
    (files / "deep.yaml").write_text("name: deep\ndag: " + "[" * 100_000)
    os.mkfifo(files / "fifo.yaml")

    names = {f"broken_{name}.yaml" for name in ("bytes", "empty", "folder", "gone", "list", "deep", "fifo")}
    assert set(folder.dags()) == {"good", *names}


def test_airflow_can_store_a_broken_one(folder: Folder) -> None:
    folder.declare("a", "dag: {shape: x, schedule: '@hourly'}")
    folder.declare("b", "dag: {schedule: '@hourly'}\nsinks: 1")

    for dag in folder.dags().values():
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).dag_id == dag.dag_id


def test_a_task_that_runs_has_only_its_own_file_read(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        folder.declare(name, f"dag: {{dag_id: of.{name}}}")
    folder.declare("d", "dag: {shape: x}")
    read: list[str] = []

    def spied(file: Path) -> Pipeline:
        read.append(file.name)
        return load(file)

    monkeypatch.setattr(pipelines, "load_file", spied)
    for dag_id, expected in {"of.b": "b.yaml", "d": "d.yaml"}.items():
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
        assert set(folder.dags()) == {dag_id}
        assert read.pop() == expected
        assert read == []


def test_a_dag_that_no_file_names_is_looked_for_in_all(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.declare("a", "dag: {}")
    folder.declare("a", "dag: {}", file="again.yaml")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "broken_again.yaml")

    assert "broken_again.yaml" in folder.dags()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere is not a folder"):
        pipeline_dags(str(tmp_path / "dags.py"), "nowhere")


def test_the_section_is_not_part_of_what_the_ledger_stores(folder: Folder) -> None:
    folder.declare("orders", "dag: {schedule: '@hourly'}")
    dag = folder.dags()["orders"]
    dag.fileloc = folder.dag_file
    task: Any = dag.get_task("replicate")

    assert "dag" not in task.load_pipeline().document()


HOSTILE: dict[str, str | bytes] = {
    "tag.yaml": "!p\nname: x\n",
    "set.yaml": "!!set\n? a\n",
    "tagged section.yaml": "name: tagged\ndag: !p {}\n",
    "no mapping.yaml": "!!str x",
    "late.yaml": "name: late\nsinks: 1\ndag: {start_date: '9999-12-31T23:59:59-12:00', schedule: '@daily'}\n",
    "early.yaml": "name: early\nsinks: 1\ndag: {start_date: '0001-01-01T00:00:00+12:00'}\n",
    "late alone.yaml": PIPELINE.format(name="late_alone", more="dag: {start_date: '9999-12-31T23:59:59-12:00'}"),
    f"{'n' * 241}.yaml": "name: [",
    f"{'n' * 240}m.yaml": "name: [",
    "\u00e9" * 100 + ".yaml": "name: [",
    "a b.yaml": "name: [",
    "a_b.yaml": "name: [",
    "a:b.yml": "name: [",
    "not utf-8 \udcff.yaml": "name: [",
    "not utf-8 but right \udcff.yaml": PIPELINE.format(name="odd_name", more="dag: {}"),
    "0.yaml": "name: good\nsinks: 1\ndag: {}\n",
    "1.yaml": "name: other\nsinks: 1\ndag: {dag_id: broken_a_b.yaml}\n",
    "bytes.yaml": b"\xff\xfe\x00",
    "nul.yaml": "name: x\0",
    "odd schedule.yaml": "name: odd\nsinks: 1\ndag: {schedule: 'H(1-0) * * * *'}\n",
    "no schedule.yaml": "name: none\nsinks: 1\ndag: {schedule: '\\ud800'}\n",
    "every.yaml": "name: every\nsinks: 1\ndag: {every: 99999999999999999999d}\n",
    "date.yaml": "name: 2026-01-01\ndag: {}\n",
    "big number.yaml": "name: " + "9" * 5000,
    "alias.yaml": "&a [*a]",
    "keys.yaml": "? [a]\n: b\nname: {}\ndag: []\n",
}


def test_no_hostile_file_takes_the_dag_of_a_good_one_or_hides_another_bad_one(folder: Folder) -> None:
    folder.declare("good", "dag: {schedule: '@daily'}")
    files = Path(folder.dag_file).parent / "pipelines"
    for name, content in HOSTILE.items():
        (files / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    dags: dict[str, Any] = folder.dags()

    assert (dags["good"].schedule, "broken" in dags["good"].tags) == ("@daily", False)
    broken = [dag for dag in dags.values() if "broken" in dag.tags]
    assert len(broken) == len(HOSTILE) == len(dags) - 1
    for dag in dags.values():
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).dag_id == dag.dag_id
        f"{dag.doc_md}{dag.description}".encode()
    for dag in broken:
        with pytest.raises(AirflowFailException):
            run(dag)
    choices: Any = recovery_dag(pipelines=files).params.get_param("pipeline").schema["enum"]
    assert "good" in choices


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_each_hostile_file_costs_its_own_dag_alone(folder: Folder, name: str) -> None:
    folder.declare("good", "dag: {}")
    content = HOSTILE[name]
    files = Path(folder.dag_file).parent / "pipelines"
    (files / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    dags = folder.dags()

    assert len(dags) == 2
    assert "broken" not in dags["good"].tags
    assert "good" in recovery_dag(pipelines=files).params.get_param("pipeline").schema["enum"]


def test_an_error_of_another_kind_is_shown_and_costs_its_own_dag_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.declare("bad", "dag: {}")
    folder.declare("good", "dag: {}")

    def failing(section: Any, shared: Any) -> None:
        if "bad" in shared["pipeline"]:
            raise RuntimeError("no such luck")
        added(section, shared)

    added = pipelines._add_tasks
    monkeypatch.setattr(pipelines, "_add_tasks", failing)
    monkeypatch.setattr(DagContext, "current_autoregister_module_name", __name__)
    monkeypatch.setattr(DagContext, "autoregistered_dags", set())

    dags = folder.dags()

    assert "RuntimeError: no such luck" in str(dags["bad"].doc_md)
    assert "broken" not in dags["good"].tags
    assert {dag for dag, _ in DagContext.autoregistered_dags} == set(dags.values())


def test_a_broken_dag_that_airflow_does_not_take_as_scheduled_is_shown_without_a_schedule(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.declare("bad", "dag: {schedule: '@daily'}\nsinks: 1")
    folder.declare("good", "dag: {}")

    def refused(schedule: object) -> bool:
        if schedule == "@daily":
            raise OverflowError("date value out of range")
        return True

    monkeypatch.setattr(pipelines, "_is_schedule", refused)
    dag: Any = folder.dags()["bad"]

    assert dag.schedule is None
    assert "sinks" in str(dag.doc_md)


@pytest.mark.parametrize("hidden", ['"\\x73ales"', "${SHOP_PIPELINE}", "sa${NOTHING:-}les", '"sa\\\n  les"'])
def test_the_worker_finds_the_file_even_if_the_dags_name_is_not_in_its_text(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    monkeypatch.setenv("SHOP_PIPELINE", "sales")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "sales")
    file = Path(folder.dag_file).parent / "pipelines/0.yaml"
    file.write_text(PIPELINE.format(name=hidden, more="dag: {owner: hidden}"))
    folder.declare("sales", "dag: {owner: plain}")  # the second file with this DAG, which the DAG processor refuses

    assert folder.dags()["sales"].default_args["owner"] == "hidden"


def test_the_worker_parses_no_other_file_and_the_dag_processor_each_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        folder.declare(f"p{number:03}", "dag: {}")
    parsed: list[str] = []
    compose = document._compose

    def spied(text: str, content: str) -> object:
        parsed.append(text)
        return compose(text, content)

    monkeypatch.setattr(document, "_compose", spied)

    for dag in folder.dags().values():
        dag.fileloc = folder.dag_file
        for task in dag.tasks:
            task.prepare_template()
    assert len(parsed) == 300

    parsed.clear()
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "p123")
    assert list(folder.dags()) == ["p123"]
    assert len(parsed) == 1


def test_the_worker_takes_the_right_file_where_a_wrong_one_names_the_same_dag(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.declare("good", "sinks: 1\ndag: {}", file="0.yaml")
    folder.declare("good", "dag: {}")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "good")

    assert "broken" not in folder.dags()["good"].tags
