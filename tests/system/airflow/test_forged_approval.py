"""A user who may edit a recovery run, but not approve it, cannot have an action carried out over the REST API.

Here only ``ada`` may approve; ``oscar`` may trigger, clear, mark tasks, and write XComs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from tests.system.airflow.deployment import PATIENCE, Deployment

DAG, PIPELINE = "guarded_recovery", "guarded"
ENDED = {"success", "failed", "upstream_failed", "skipped"}


@pytest.fixture(scope="module", autouse=True)
def delivered(deployment: Deployment) -> Deployment:
    """The pipeline has delivered something that a rewind would read again."""
    deployment.write(PIPELINE, range(40))
    deployment.run(PIPELINE)
    return deployment


@pytest.fixture(autouse=True)
def running(deployment: Deployment) -> Iterator[None]:
    """Every test leaves the pipeline running, whatever an attack has done to it."""
    yield
    with deployment.ledger() as ledger:
        if ledger.status(PIPELINE)["phase"] != "running":
            ledger.action(PIPELINE, Action(ActionKind.RESUME), actor="test", reason="after an attack")


def ask(deployment: Deployment, action: str = "rewind", **params: Any) -> str:
    """Oscar triggers the recovery; the run's id, once the question stands."""
    wanted = {"to_position": 0} if action == "rewind" else {}
    conf = {"pipeline": PIPELINE, "action": action, "reason": "just because", **wanted, **params}
    run_id = deployment.airflow.trigger(DAG, conf, user="oscar")
    deployment.asks(DAG, run_id, "approve")
    return run_id


def path(run_id: str, task: str, rest: str = "") -> str:
    return f"/dags/{DAG}/dagRuns/{quote(run_id)}/taskInstances/{task}{rest}"


def answer(deployment: Deployment, run_id: str, option: str = "Approve", user: str = "ada") -> None:
    body = {"chosen_options": [option], "params_input": {}}
    deployment.airflow.api("PATCH", path(run_id, "approve", "/-1/hitlDetails"), body, user=user)


def forge(deployment: Deployment, run_id: str, task: str, key: str, value: Any) -> None:
    """Oscar writes an XCom, whether it is there or not."""
    entry = {"value": value, "map_index": -1}
    codes = [
        status(deployment, "POST", path(run_id, task, "/xcomEntries"), {"key": key, **entry}),
        status(deployment, "PATCH", path(run_id, task, f"/xcomEntries/{key}"), entry),
    ]
    assert 200 in codes, codes


def status(deployment: Deployment, method: str, where: str, body: Mapping[str, Any]) -> int:
    """With which status Oscar's call of the API is answered."""
    try:
        deployment.airflow.api(method, where, body, user="oscar")
    except HTTPError as error:
        return error.code
    return 200


def mark_success(deployment: Deployment, run_id: str, task: str) -> None:
    deployment.airflow.api("PATCH", path(run_id, task), {"new_state": "success"}, user="oscar")


def clear(deployment: Deployment, run_id: str, *tasks: str) -> None:
    body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(tasks), "only_failed": False}
    deployment.airflow.api("POST", f"/dags/{DAG}/clearTaskInstances", body, user="oscar")


def settled(deployment: Deployment, run_id: str, task: str = "carry_out") -> str:
    """The state in which a task ended, once the run has ended."""
    deployment.airflow.wait(DAG, run_id, PATIENCE)
    state = str(deployment.task(DAG, run_id, task)["state"])
    assert state in ENDED
    return state


def done(deployment: Deployment) -> list[tuple[str, str]]:
    """Return the pipeline's actions so far, in order, each with its actor."""
    with deployment.ledger() as ledger:
        events = ledger.events(PIPELINE, 1000)
    return [(event["kind"], event["actor"]) for event in events if event["kind"] in KINDS]


KINDS = {"rewind", "force_stop", "skip", "release", "recover", "replay_dead_letters"}
FORGED = {"approved": True, "user": "ada"}


def test_an_answer_written_as_an_xcom_and_a_task_marked_success_approve_nothing(deployment: Deployment) -> None:
    before = done(deployment)
    run_id = ask(deployment, "force_stop")
    with pytest.raises(HTTPError) as refusal:
        answer(deployment, run_id, user="oscar")
    assert refusal.value.code == 403

    forge(deployment, run_id, "approve", "answer", FORGED)
    forge(deployment, run_id, "approve", "return_value", {"chosen_options": ["Approve"], **FORGED})
    mark_success(deployment, run_id, "approve")

    assert settled(deployment, run_id) == "failed"
    assert done(deployment) == before


def test_an_approval_is_used_once_however_often_its_tasks_are_cleared(deployment: Deployment) -> None:
    before = done(deployment)
    run_id = ask(deployment)
    answer(deployment, run_id)
    assert settled(deployment, run_id) == "success"
    assert done(deployment) == [*before, ("rewind", "airflow:ada")]

    clear(deployment, run_id, "carry_out")
    assert settled(deployment, run_id) == "failed"
    clear(deployment, run_id, "approve", "carry_out")
    assert settled(deployment, run_id, "approve") == "failed"
    mark_success(deployment, run_id, "approve")
    clear(deployment, run_id, "carry_out")
    assert settled(deployment, run_id) == "failed"

    assert done(deployment) == [*before, ("rewind", "airflow:ada")]


def test_a_preview_that_is_rewritten_while_the_question_stands_changes_nothing_of_what_is_done(
    deployment: Deployment,
) -> None:
    before = done(deployment)
    run_id = ask(deployment)
    seen = deployment.airflow.xcom(DAG, run_id, "preview")

    other = {"proposal": Action(ActionKind.FORCE_STOP).to_json(), "act": "force_stop", "actor": "airflow:eve"}
    forge(deployment, run_id, "preview", "return_value", {**seen, **other})
    answer(deployment, run_id)

    assert settled(deployment, run_id) == "success"
    assert done(deployment) == [*before, ("rewind", "airflow:ada")]
    assert "requested by airflow:oscar" in deployment.events(PIPELINE, "rewind")[-1]["detail"]["reason"]


def test_a_preview_that_runs_again_while_the_question_stands_voids_what_the_question_shows(
    deployment: Deployment,
) -> None:
    before = done(deployment)
    run_id = ask(deployment)

    clear(deployment, run_id, "preview")
    deployment.reaches(DAG, run_id, "preview", "success")
    answer(deployment, run_id)

    assert settled(deployment, run_id) in {"failed", "upstream_failed"}
    assert done(deployment) == before


def test_a_rejection_cannot_be_turned_into_an_approval(deployment: Deployment) -> None:
    before = done(deployment)
    run_id = ask(deployment)
    answer(deployment, run_id, "Reject")
    assert settled(deployment, run_id) == "skipped"

    forge(deployment, run_id, "approve", "answer", FORGED)
    forge(deployment, run_id, "approve", "skipmixin_key", {"followed": ["carry_out"]})
    clear(deployment, run_id, "carry_out")

    assert settled(deployment, run_id) in {"failed", "skipped"}
    assert done(deployment) == before


def test_a_question_that_an_older_preview_left_behind_is_not_asked_for_a_newer_one(deployment: Deployment) -> None:
    before = done(deployment)
    run_id = ask(deployment)

    clear(deployment, run_id, "preview", "approve", "carry_out", "report")

    assert settled(deployment, run_id, "approve") == "failed"
    assert "Airflow still shows the question that this task asked earlier" in deployment.airflow.task_log(
        DAG, run_id, "approve"
    )
    assert done(deployment) == before
