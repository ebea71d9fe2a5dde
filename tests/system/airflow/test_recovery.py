"""The recovery DAG over the REST API: who may trigger and approve it, what is done then, and what the trail keeps."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

import pytest

from tests.services.docs import blocks_of
from tests.system.airflow.scene import Scene


def trigger(scene: Scene, action: str, user: str = "ada", **params: Any) -> str:
    """Trigger the recovery of pipeline ``stopped``; the run's id."""
    conf = {"pipeline": "stopped", "action": action, "reason": "a | b <b>c</b>", **params}
    return scene.airflow.trigger("recovery", conf, user=user)


def answer(scene: Scene, run_id: str, option: str, user: str) -> None:
    """Answer the approval, as its page does."""
    scene.asks("recovery", run_id, "approve")
    path = f"/dags/recovery/dagRuns/{run_id.replace('+', '%2B')}/taskInstances/approve/-1/hitlDetails"
    scene.airflow.api("PATCH", path, {"chosen_options": [option], "params_input": {}}, user=user)


def refused(error: pytest.ExceptionInfo[HTTPError]) -> bool:
    return error.value.code == 403


@pytest.fixture(scope="module", autouse=True)
def known(scene: Scene) -> None:
    """The ledger knows pipeline ``stopped`` by a run."""
    scene.run("stopped")


def test_a_remedy_is_done_once_somebody_else_has_approved_it_and_the_trail_names_both(scene: Scene) -> None:
    with pytest.raises(HTTPError) as error:
        trigger(scene, "force_stop", user="vera")
    assert refused(error)

    run_id = trigger(scene, "force_stop")
    with pytest.raises(HTTPError) as error:
        answer(scene, run_id, "Approve", "vera")
    assert refused(error)
    with scene.ledger() as ledger:
        assert ledger.status("stopped")["phase"] == "running"
    answer(scene, run_id, "Approve", "oscar")
    scene.succeeds("recovery", run_id)

    (event,) = scene.events("stopped", "force_stop")
    assert event["actor"] == "airflow:oscar"
    assert event["detail"]["reason"] == "a | b <b>c</b> (requested by airflow:ada)"
    assert (event["detail"]["before"]["phase"], event["detail"]["after"]["phase"]) == ("running", "stopped")
    report = scene.airflow.xcom("recovery", run_id, "report")
    assert (report["outcome"], report["phase"]) == ("done, approved by airflow:oscar", "stopped")

    run_id = trigger(scene, "resume", user="oscar")
    answer(scene, run_id, "Approve", "oscar")
    scene.succeeds("recovery", run_id)

    assert scene.events("stopped", "resume")[0]["detail"]["reason"] == "a | b <b>c</b>"
    assert not scene.trace("stopped").held


def test_what_is_rejected_leaves_the_run_green_and_nothing_done(scene: Scene) -> None:
    before = scene.trace("stopped")

    run_id = trigger(scene, "force_stop")
    answer(scene, run_id, "Reject", "oscar")
    scene.succeeds("recovery", run_id)

    assert scene.airflow.task_states("recovery", run_id)["carry_out"] == "skipped"
    assert (
        scene.airflow.xcom("recovery", run_id, "report")["outcome"] == "rejected by airflow:oscar, nothing was changed"
    )
    assert scene.trace("stopped") == before


def test_a_dry_run_shows_what_would_be_done_and_asks_nobody(scene: Scene) -> None:
    before = scene.trace("stopped")

    run_id = trigger(scene, "force_stop", dry_run=True)
    scene.succeeds("recovery", run_id)

    states = scene.airflow.task_states("recovery", run_id)
    assert states == {"preview": "success", "approve": "skipped", "carry_out": "skipped", "report": "success"}
    body = scene.airflow.xcom("recovery", run_id, "preview")["body"]
    assert "| phase | running | stopped |" in body
    assert "a \\| b \\<b\\>c\\<\\/b\\>" in body
    assert "The action would change this" in scene.airflow.task_log("recovery", run_id, "preview")
    assert scene.trace("stopped") == before


def test_a_program_asks_and_answers_as_the_page_shows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    before = scene.trace("stopped").epoch
    monkeypatch.setenv("AIRFLOW", scene.airflow.url)
    monkeypatch.setenv("TOKEN", scene.airflow.token("oscar"))
    shown = [block for block in blocks_of("docs/recovery.rst") if block.language == "python" and not block.included]

    for action in ("force_stop", "resume"):
        here = {"/ckpt_recovery": "/recovery", '"orders"': '"stopped"', '"release"': f'"{action}"'}
        asks, answers = (block.replacing(here).text for block in shown)
        known: dict[str, Any] = {}
        exec(asks, known)
        scene.asks("recovery", known["asked"]["dag_run_id"], "approve")
        exec(answers, known)
        scene.succeeds("recovery", known["asked"]["dag_run_id"])

    assert scene.events("stopped", "force_stop")[-1]["epoch"] > before
    assert scene.events("stopped", "resume")[-1]["detail"]["reason"] == "the disk has room again"


@pytest.mark.parametrize(
    "params", [{"action": "drop"}, {"pipeline": "unknown"}, {"reason": ""}, {"to_position": "first"}, {"dry_run": 7}]
)
def test_a_form_with_a_wrong_field_is_refused_before_anything_runs(scene: Scene, params: dict[str, Any]) -> None:
    with pytest.raises(HTTPError) as error:
        trigger(scene, **{"action": "release", **params})

    assert error.value.code == 400
