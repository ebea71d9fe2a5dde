"""Tests of a run in progress with which a user or another run interferes; Spark waits at a closed gate."""

from __future__ import annotations

import signal
from urllib.parse import quote

import pytest

from tests.services import processes
from tests.system.airflow.deployment import PATIENCE, Deployment

pytestmark = pytest.mark.beside


def test_a_running_run_that_is_cleared_stops_spark_and_its_next_try_reconciles_first(deployment: Deployment) -> None:
    deployment.write("killed", range(80))
    with deployment.closed("killed"):
        run_id = deployment.begin("killed")
        deployment.at_gate("killed")
        spark = processes.below(deployment.worker("killed", run_id, "replicate")[0].pid)
        deployment.clear("killed", run_id)
        deployment.airflow.until(lambda: not processes.alive(spark), PATIENCE, "Spark lives on")

    deployment.succeeds("killed", run_id)

    seen = deployment.trace("killed")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert seen.events.count("cancelled") == 1
    assert seen.events.index("cancelled") < len(seen.events) - 1 - seen.events[::-1].index("lease_acquired")
    assert "open attempts are cancelled, the lease is released" in deployment.airflow.task_log(
        "killed", run_id, "replicate"
    )


def test_of_two_runs_at_once_the_second_waits_or_fails_fast_as_configured(deployment: Deployment) -> None:
    deployment.write("doubled", range(80))
    declaration = deployment.declarations["doubled"].read_text()
    with deployment.closed("doubled"):
        first = deployment.begin("doubled")
        deployment.at_gate("doubled")
        waiting = deployment.begin("doubled")
        deployment.airflow.until(
            lambda: "Waiting for the lease" in deployment.airflow.task_log("doubled", waiting, "replicate.plan"),
            PATIENCE,
            "the second run does not wait",
        )
        deployment.declarations["doubled"].write_text(declaration.replace("on_busy: wait", "on_busy: fail"))
        hasty = deployment.begin("doubled")
        assert deployment.airflow.wait("doubled", hasty, PATIENCE) == "failed"
        assert first in deployment.airflow.task_log("doubled", hasty, "replicate.plan")
        assert deployment.airflow.state("doubled", waiting) == "running"

    deployment.succeeds("doubled", first)
    deployment.succeeds("doubled", waiting)

    seen = deployment.trace("doubled")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert seen.epoch == 2
    assert [event["actor"].split("/")[1] for event in deployment.events("doubled", "lease_acquired")] == [
        first,
        waiting,
    ]


def test_past_an_expired_lease_status_tells_of_the_first_run_and_the_second_fences_it(deployment: Deployment) -> None:
    deployment.write("expired", range(80))
    with deployment.closed("expired"):
        frozen = deployment.begin("expired")
        deployment.at_gate("expired")
        hosts = processes.below(deployment.worker("expired", frozen, "replicate")[0].pid)
        processes.kill(hosts, signal.SIGSTOP)
        try:
            deployment.let_go("expired")
            seen_while_frozen = deployment.status("expired")
            second = deployment.begin("expired")
            deployment.happens("expired", "fenced")
        finally:
            processes.kill(hosts, signal.SIGCONT)

    assert not seen_while_frozen["lease"]["held"]
    told = seen_while_frozen["dag_run"]
    assert (told["dag_id"], told["run_id"], told["state"]) == ("expired", frozen, "running")
    assert "Airflow shows replicate as running, but no run holds the lease" in (told["disagrees"] or "")

    deployment.succeeds("expired", second)
    assert deployment.status("expired")["dag_run"]["run_id"] == second

    assert deployment.airflow.wait("expired", frozen, PATIENCE) == "failed"
    seen = deployment.trace("expired")
    assert seen.ids == list(range(80))
    assert not seen.held
    assert "lease_taken_over" in seen.events
    assert seen.events.count("fenced") == 1
    assert deployment.task("expired", frozen, "replicate")["try_number"] == 1


def test_a_paused_dag_ends_the_task_that_runs_and_goes_on_where_it_stood(deployment: Deployment) -> None:
    name = "rested"
    deployment.write(name, range(80))
    with deployment.closed(name):
        run_id = deployment.begin(name)
        deployment.at_gate(name)
        deployment.airflow.api("PATCH", f"/dags/{quote(name)}", {"is_paused": True})
    deployment.reaches(name, run_id, "replicate.submit", "success")
    deployment.let_go(name)
    assert deployment.task(name, run_id, "replicate.settle")["state"] is None
    assert deployment.checkpoint(name) > 0

    deployment.airflow.api("PATCH", f"/dags/{quote(name)}", {"is_paused": False})
    deployment.succeeds(name, run_id)

    seen = deployment.trace(name)
    assert seen.ids == list(range(80))
    assert not seen.held
