"""The recovery DAG as Airflow parses it: its form, its tasks, and the escaping of texts from users."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow.sdk import Param
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from airflow_provider_ckpt.operators._markdown import escape
from airflow_provider_ckpt.operators.approval import CkptApprovalOperator
from airflow_provider_ckpt.replication.actions.proposals import REQUESTABLE


def test_the_form_offers_the_declared_pipelines_and_every_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: orders\nsource: {type: files}\n")
    (tmp_path / "b.yml").write_text("name: flights\n")
    (tmp_path / "broken.yaml").write_text("name: [\n")
    (tmp_path / "list.yaml").write_text("- 1\n")

    params = recovery_dag("care", pipelines=tmp_path).params

    assert params.get_param("pipeline").schema["enum"] == ["flights", "orders"]
    assert params.get_param("action").schema["enum"] == list(REQUESTABLE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pipeline", "unknown"),
        ("action", "drop table"),
        ("reason", ""),
        ("to_position", -1),
        ("to_position", "1; drop"),
        ("batches", "t#1"),
        ("stop_at", 0),
        ("dry_run", "perhaps"),
    ],
)
def test_the_form_refuses_what_is_not_of_its_type(name: str, value: object) -> None:
    params = recovery_dag("care", pipelines=["orders"]).params

    with pytest.raises(ParamValidationError):
        params.get_param(name).resolve(value)


def test_the_reason_must_be_given() -> None:
    with pytest.raises(ParamValidationError):
        recovery_dag("care", pipelines=["orders"]).params.get_param("reason").resolve()


def test_nothing_is_done_before_it_is_approved_and_all_ends_in_a_report() -> None:
    dag = recovery_dag("care", pipelines=["orders"], approvers=["ada"])

    upstream = {task.task_id: task.upstream_task_ids for task in dag.tasks}
    assert upstream == {"preview": set(), "approve": {"preview"}, "carry_out": {"approve"}, "report": {"carry_out"}}
    assert dag.get_task("carry_out").trigger_rule == "all_success"
    approve = dag.get_task("approve")
    assert isinstance(approve, CkptApprovalOperator)
    assert approve.assigned_users == [{"id": "ada", "name": "ada"}]


def test_a_folder_without_a_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no pipeline to choose"):
        recovery_dag("care", pipelines=tmp_path)


def test_a_single_name_is_no_list_of_names() -> None:
    with pytest.raises(ConfigError, match=r"not a list of names. Write \['orders'\]"):
        recovery_dag("care", pipelines="orders")


def test_the_form_may_ask_for_more() -> None:
    params = recovery_dag("care", pipelines=["orders"], params={"ticket": Param("", type="string")}).params

    assert {"pipeline", "reason", "ticket"} <= set(params)


@given(st.text(max_size=60))
@example("<img src=x onerror=alert(1)>")
@example("[a](javascript:alert(1)) ![b](http://example.com/c.png)")
@example("| a | b |\n|---|---|\n# head\n* item `code` **strong** ~~no~~")
@example("https://example.com www.example.com &lt; &#60; \\ {{ params }}")
def test_text_of_other_people_is_shown_as_it_is_and_never_becomes_markup(text: str) -> None:
    (paragraph,) = [token for token in MarkdownIt("gfm-like").parse(f"x{escape(text)}x") if token.type == "inline"]

    assert paragraph.children is not None
    assert {token.type for token in paragraph.children} <= {"text", "text_special"}
    shown = "".join(token.content for token in paragraph.children)
    assert shown == "x" + "".join(char if char.isprintable() else " " for char in text) + "x"
