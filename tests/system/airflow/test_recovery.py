"""The recovery DAG over the REST API: who may trigger and approve it, its effects, and its entries in the audit log."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

import pytest

from tests.services.docs import blocks_of
from tests.system.airflow.deployment import Deployment


def trigger(deployment: Deployment, action: str, user: str = "ada", **params: Any) -> str:
    """Trigger the recovery of pipeline ``stopped``; the run's id."""
    conf = {"pipeline": "stopped", "action": action, "reason": "a | b <b>c</b>", **params}
    return deployment.airflow.trigger("recovery", conf, user=user)


def answer(deployment: Deployment, run_id: str, option: str, user: str) -> None:
    """Answer the approval, as its page does."""
    deployment.asks("recovery", run_id, "approve")
    path = f"/dags/recovery/dagRuns/{run_id.replace('+', '%2B')}/taskInstances/approve/-1/hitlDetails"
    deployment.airflow.api("PATCH", path, {"chosen_options": [option], "params_input": {}}, user=user)


def refused(error: pytest.ExceptionInfo[HTTPError]) -> bool:
    return error.value.code == 403


@pytest.fixture(scope="module", autouse=True)
def known(deployment: Deployment) -> None:
    """The ledger knows pipeline ``stopped`` by a run."""
    deployment.run("stopped")


def test_a_remedy_is_done_once_somebody_else_has_approved_it_and_the_trail_names_both(deployment: Deployment) -> None:
    with pytest.raises(HTTPError) as error:
        trigger(deployment, "force_stop", user="vera")
    assert refused(error)

    run_id = trigger(deployment, "force_stop")
    with pytest.raises(HTTPError) as error:
        answer(deployment, run_id, "Approve", "vera")
    assert refused(error)
    with deployment.ledger() as ledger:
        assert ledger.status("stopped")["phase"] == "running"
    answer(deployment, run_id, "Approve", "oscar")
    deployment.succeeds("recovery", run_id)

    (event,) = deployment.events("stopped", "force_stop")
    assert event["actor"] == "airflow:oscar"
    assert event["detail"]["reason"] == "a | b <b>c</b> (requested by airflow:ada)"
    assert (event["detail"]["before"]["phase"], event["detail"]["after"]["phase"]) == ("running", "stopped")
    report = deployment.airflow.xcom("recovery", run_id, "report")
    assert (report["outcome"], report["phase"]) == ("done, approved by airflow:oscar", "stopped")

    run_id = trigger(deployment, "resume", user="oscar")
    answer(deployment, run_id, "Approve", "oscar")
    deployment.succeeds("recovery", run_id)

    assert deployment.events("stopped", "resume")[0]["detail"]["reason"] == "a | b <b>c</b>"
    assert not deployment.trace("stopped").held


def test_what_is_rejected_leaves_the_run_green_and_nothing_done(deployment: Deployment) -> None:
    before = deployment.trace("stopped")

    run_id = trigger(deployment, "force_stop")
    answer(deployment, run_id, "Reject", "oscar")
    deployment.succeeds("recovery", run_id)

    assert deployment.airflow.task_states("recovery", run_id)["carry_out"] == "skipped"
    assert (
        deployment.airflow.xcom("recovery", run_id, "report")["outcome"]
        == "rejected by airflow:oscar, nothing was changed"
    )
    assert deployment.trace("stopped") == before


def test_a_dry_run_shows_what_would_be_done_and_asks_nobody(deployment: Deployment) -> None:
    before = deployment.trace("stopped")

    run_id = trigger(deployment, "force_stop", dry_run=True)
    deployment.succeeds("recovery", run_id)

    states = deployment.airflow.task_states("recovery", run_id)
    assert states == {"preview": "success", "approve": "skipped", "carry_out": "skipped", "report": "success"}
    body = deployment.airflow.xcom("recovery", run_id, "preview")["body"]
    assert "| phase | running | stopped |" in body
    assert "a \\| b \\<b\\>c\\<\\/b\\>" in body
    assert "The action would change this" in deployment.airflow.task_log("recovery", run_id, "preview")
    assert deployment.trace("stopped") == before


def test_a_program_asks_and_answers_as_the_page_shows(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    before = deployment.trace("stopped").epoch
    monkeypatch.setenv("AIRFLOW", deployment.airflow.url)
    monkeypatch.setenv("TOKEN", deployment.airflow.token("oscar"))
    shown = [block for block in blocks_of("docs/recovery.rst") if block.language == "python" and not block.included]

    for action in ("force_stop", "resume"):
        here = {"/ckpt_recovery": "/recovery", '"orders"': '"stopped"', '"release"': f'"{action}"'}
        asks, answers = (block.replacing(here).text for block in shown)
        known: dict[str, Any] = {}
        exec(asks, known)
        deployment.asks("recovery", known["asked"]["dag_run_id"], "approve")
        exec(answers, known)
        deployment.succeeds("recovery", known["asked"]["dag_run_id"])

    assert deployment.events("stopped", "force_stop")[-1]["epoch"] > before
    assert deployment.events("stopped", "resume")[-1]["detail"]["reason"] == "the disk has room again"


@pytest.mark.parametrize(
    "params", [{"action": "drop"}, {"pipeline": "unknown"}, {"reason": ""}, {"to_position": "first"}, {"dry_run": 7}]
)
def test_a_form_with_a_wrong_field_is_refused_before_anything_runs(
    deployment: Deployment, params: dict[str, Any]
) -> None:
    with pytest.raises(HTTPError) as error:
        trigger(deployment, **{"action": "release", **params})

    assert error.value.code == 400
