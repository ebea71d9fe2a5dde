"""Tests of a user's changes to a finished run in Airflow: clear it, mark it, backfill, delete the DAG."""

from __future__ import annotations

from tests.system.airflow.scene import Scene


def test_a_finished_run_that_is_cleared_sends_nothing_again_and_plans_what_is_new(scene: Scene) -> None:
    scene.write("cleared", range(100))
    run_id = scene.run("cleared")
    first = scene.trace("cleared")

    scene.clear("cleared", run_id)
    scene.succeeds("cleared", run_id)

    again = scene.trace("cleared")
    assert again.ids == first.ids == list(range(100))
    assert again.epoch == first.epoch + 1
    states = scene.airflow.task_states("cleared", run_id)
    assert (states["replicate.submit"], states["replicate.hold"], states["after"]) == ("skipped", "skipped", "success")
    assert scene.airflow.xcom("cleared", run_id, "after") == {"after": "cleared"}

    scene.write("cleared", range(100, 150))
    scene.clear("cleared", run_id)
    scene.succeeds("cleared", run_id)

    last = scene.trace("cleared")
    assert last.ids == list(range(150))
    assert not last.held
    assert last.events.count("lease_acquired") == last.events.count("lease_released") == 3


def test_marking_a_run_changes_nothing_in_the_ledger_and_status_says_that_they_disagree(scene: Scene) -> None:
    scene.write("marked", range(50))
    with scene.closed("marked"):
        cut_off = scene.begin("marked")
        scene.at_gate("marked")
        mark(scene, "marked", cut_off, "success")
        scene.let_go("marked")
    assert scene.trace("marked").ids == []
    seen = scene.status("marked")["dag_run"]
    assert (seen["run_id"], seen["state"]) == (cut_off, "success")
    assert "1 planned" in seen["disagrees"]

    run_id = scene.run("marked")
    delivered = scene.trace("marked")
    assert delivered.ids == list(range(50))
    expected = {"dag_id": "marked", "run_id": run_id, "state": "success", "disagrees": None}
    assert scene.status("marked")["dag_run"] == expected

    mark(scene, "marked", run_id, "failed")

    assert scene.trace("marked") == delivered
    seen = scene.status("marked")["dag_run"]
    assert (seen["run_id"], seen["state"]) == (run_id, "failed")
    assert "all planned batches have a verdict" in seen["disagrees"]


def test_a_backfill_of_an_old_date_moves_no_checkpoint_and_the_ledger_survives_the_dag(scene: Scene) -> None:
    scene.write("backfilled", range(50))
    scene.run("backfilled")
    before = scene.trace("backfilled")
    checkpoint = scene.checkpoint("backfilled")

    body = {
        "dag_id": "backfilled",
        "from_date": "2024-01-05T00:00:00Z",
        "to_date": "2024-01-06T00:00:00Z",
        "max_active_runs": 1,
    }
    scene.airflow.api("POST", "/backfills", body)
    runs = "/dags/backfilled/dagRuns?run_type=backfill"
    scene.airflow.until(
        lambda: [run["state"] for run in scene.airflow.api("GET", runs)["dag_runs"]] == ["success", "success"],
        120,
        "the backfill did not end",
    )

    after = scene.trace("backfilled")
    assert after.ids == before.ids
    assert after.epoch == before.epoch + 2
    assert scene.checkpoint("backfilled") == checkpoint

    scene.declarations["backfilled"].rename(scene.data / "backfilled.yaml")
    scene.declarations["backfilled"] = scene.data / "backfilled.yaml"
    scene.airflow.api("DELETE", "/dags/backfilled")

    assert scene.trace("backfilled") == after
    scene.airflow.cli("ckpt", "pipeline", "delete", "backfilled", "--reason", "its DAG is gone", "--yes")
    with scene.ledger() as ledger:
        assert "backfilled" not in ledger.pipelines()


def mark(scene: Scene, name: str, run_id: str, state: str) -> None:
    """Mark a DAG run, as a person does."""
    scene.airflow.api("PATCH", f"/dags/{name}/dagRuns/{run_id.replace('+', '%2B')}", {"state": state})
