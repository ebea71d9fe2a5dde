"""Tests of a user's changes to a finished DAG run: clear it, mark it, backfill, delete the DAG."""

from __future__ import annotations

import pytest

from tests.system.airflow.deployment import PATIENCE, Deployment

pytestmark = pytest.mark.beside


def test_a_finished_run_that_is_cleared_sends_nothing_again_and_plans_what_is_new(deployment: Deployment) -> None:
    deployment.write("cleared", range(100))
    run_id = deployment.run("cleared")
    first = deployment.trace("cleared")

    deployment.clear("cleared", run_id)
    deployment.succeeds("cleared", run_id)

    again = deployment.trace("cleared")
    assert again.ids == first.ids == list(range(100))
    assert again.epoch == first.epoch + 1
    states = deployment.airflow.task_states("cleared", run_id)
    assert (states["replicate.submit"], states["replicate.hold"], states["after"]) == ("skipped", "skipped", "success")
    assert deployment.airflow.xcom("cleared", run_id, "after") == {"after": "cleared"}

    deployment.write("cleared", range(100, 150))
    deployment.clear("cleared", run_id)
    deployment.succeeds("cleared", run_id)

    last = deployment.trace("cleared")
    assert last.ids == list(range(150))
    assert not last.held
    assert last.events.count("lease_acquired") == last.events.count("lease_released") == 3


def test_marking_a_run_gives_no_batch_a_verdict_and_status_says_that_they_disagree(deployment: Deployment) -> None:
    deployment.write("marked", range(50))
    with deployment.closed("marked"):
        cut_off = deployment.begin("marked")
        deployment.at_gate("marked")
        mark(deployment, "marked", cut_off, "success")
        deployment.let_go("marked")
    stopped = deployment.trace("marked")
    assert (stopped.ids, stopped.held) == ([], False)
    assert {"cancelled", "lease_released"} <= set(stopped.events)
    seen = deployment.status("marked")["dag_run"]
    assert (seen["run_id"], seen["state"]) == (cut_off, "success")
    assert "1 planned" in seen["disagrees"]

    run_id = deployment.run("marked")
    delivered = deployment.trace("marked")
    assert delivered.ids == list(range(50))
    expected = {"dag_id": "marked", "run_id": run_id, "state": "success", "disagrees": None}
    assert deployment.status("marked")["dag_run"] == expected

    mark(deployment, "marked", run_id, "failed")

    assert deployment.trace("marked") == delivered
    seen = deployment.status("marked")["dag_run"]
    assert (seen["run_id"], seen["state"]) == (run_id, "failed")
    assert "all planned batches have a verdict" in seen["disagrees"]


def test_a_backfill_of_an_old_date_moves_no_checkpoint_and_the_ledger_survives_the_dag(deployment: Deployment) -> None:
    deployment.write("backfilled", range(50))
    deployment.run("backfilled")
    before = deployment.trace("backfilled")
    checkpoint = deployment.checkpoint("backfilled")

    body = {
        "dag_id": "backfilled",
        "from_date": "2024-01-05T00:00:00Z",
        "to_date": "2024-01-06T00:00:00Z",
        "max_active_runs": 1,
    }
    deployment.airflow.api("POST", "/backfills", body)
    runs = "/dags/backfilled/dagRuns?run_type=backfill"
    deployment.airflow.until(
        lambda: [run["state"] for run in deployment.airflow.api("GET", runs)["dag_runs"]] == ["success", "success"],
        PATIENCE,
        "the backfill did not end",
    )

    after = deployment.trace("backfilled")
    assert after.ids == before.ids
    assert after.epoch == before.epoch + 2
    assert deployment.checkpoint("backfilled") == checkpoint

    deployment.declarations["backfilled"].rename(deployment.data / "backfilled.yaml")
    deployment.declarations["backfilled"] = deployment.data / "backfilled.yaml"
    deployment.airflow.api("DELETE", "/dags/backfilled")

    assert deployment.trace("backfilled") == after
    deployment.airflow.cli("ckpt", "pipeline", "delete", "backfilled", "--reason", "its DAG is gone", "--yes")
    with deployment.ledger() as ledger:
        assert "backfilled" not in ledger.pipelines()


def mark(deployment: Deployment, name: str, run_id: str, state: str) -> None:
    """Mark a DAG run, as a person does."""
    deployment.airflow.api("PATCH", f"/dags/{name}/dagRuns/{run_id.replace('+', '%2B')}", {"state": state})
