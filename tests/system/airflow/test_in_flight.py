"""Tests of a run in flight that a user or another run interferes with; Spark waits at a closed gate."""

from __future__ import annotations

import signal

from tests.services import processes
from tests.system.airflow.scene import Scene


def test_a_running_run_that_is_cleared_stops_spark_and_its_next_try_reconciles_first(scene: Scene) -> None:
    scene.write("killed", range(80))
    with scene.closed("killed"):
        run_id = scene.begin("killed")
        scene.at_gate("killed")
        spark = processes.below(scene.worker("killed", run_id, "replicate")[0].pid)
        scene.clear("killed", run_id)
        scene.airflow.until(lambda: not processes.alive(spark), 60, "Spark lives on")

    scene.succeeds("killed", run_id)

    seen = scene.trace("killed")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert seen.events.count("cancelled") == 1
    assert seen.events.index("cancelled") < len(seen.events) - 1 - seen.events[::-1].index("lease_acquired")
    assert "open attempts are cancelled, the lease is released" in scene.airflow.task_log("killed", run_id, "replicate")


def test_of_two_runs_at_once_the_second_waits_or_fails_fast_as_configured(scene: Scene) -> None:
    scene.write("doubled", range(80))
    declaration = scene.declarations["doubled"].read_text()
    with scene.closed("doubled"):
        first = scene.begin("doubled")
        scene.at_gate("doubled")
        waiting = scene.begin("doubled")
        scene.airflow.until(
            lambda: "Waiting for the lease" in scene.airflow.task_log("doubled", waiting, "replicate.plan"),
            60,
            "the second run does not wait",
        )
        scene.declarations["doubled"].write_text(declaration.replace("on_busy: wait", "on_busy: fail"))
        hasty = scene.begin("doubled")
        assert scene.airflow.wait("doubled", hasty, 60) == "failed"
        assert first in scene.airflow.task_log("doubled", hasty, "replicate.plan")
        assert scene.airflow.state("doubled", waiting) == "running"

    scene.succeeds("doubled", first)
    scene.succeeds("doubled", waiting)

    seen = scene.trace("doubled")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert seen.epoch == 2
    assert [event["actor"].split("/")[1] for event in scene.events("doubled", "lease_acquired")] == [first, waiting]


def test_past_an_expired_lease_status_tells_of_the_first_run_and_the_second_fences_it(scene: Scene) -> None:
    scene.write("expired", range(80))
    with scene.closed("expired"):
        frozen = scene.begin("expired")
        scene.at_gate("expired")
        hosts = processes.below(scene.worker("expired", frozen, "replicate")[0].pid)
        processes.kill(hosts, signal.SIGSTOP)
        try:
            scene.let_go("expired")
            seen_while_frozen = scene.status("expired")
            second = scene.begin("expired")
            scene.happens("expired", "fenced")
        finally:
            processes.kill(hosts, signal.SIGCONT)

    assert not seen_while_frozen["lease"]["held"]
    told = seen_while_frozen["dag_run"]
    assert (told["dag_id"], told["run_id"], told["state"]) == ("expired", frozen, "running")
    assert "Airflow shows replicate as running, but nobody holds the lease" in (told["disagrees"] or "")

    scene.succeeds("expired", second)
    assert scene.status("expired")["dag_run"]["run_id"] == second

    assert scene.airflow.wait("expired", frozen, 60) == "failed"
    seen = scene.trace("expired")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert "lease_taken_over" in seen.events
    assert seen.events.count("fenced") == 1
    assert scene.task("expired", frozen, "replicate")["try_number"] == 1
