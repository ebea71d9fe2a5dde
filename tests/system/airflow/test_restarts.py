"""Scheduler and triggerer are killed and started anew under a run, or the DAG is paused: each record arrives once."""

from __future__ import annotations

from urllib.parse import quote

from tests.services import processes
from tests.system.airflow.deployment import PATIENCE, Deployment


def arrived_once(deployment: Deployment, name: str, number: int = 80) -> None:
    """All records are there, and nobody holds the lease."""
    seen = deployment.trace(name)
    assert seen.ids == list(range(number))
    assert not seen.held


def restart(deployment: Deployment, *services: str) -> None:
    """Kill services, and start them again once all are dead."""
    for service in services:
        deployment.kill(service)
    for service in services:
        deployment.airflow.launch(service)


def test_a_scheduler_killed_while_spark_delivers_does_not_disturb_it_and_the_next_one_goes_on(
    deployment: Deployment,
) -> None:
    """The executor's workers outlive a killed scheduler."""
    name = "headless"
    deployment.write(name, range(80))
    with deployment.closed(name):
        run_id = deployment.begin(name)
        deployment.at_gate(name)
        spark = processes.below(deployment.worker(name, run_id, "replicate.submit")[0].pid)
        restart(deployment, "scheduler")
        assert processes.alive(spark)

    deployment.succeeds(name, run_id)

    arrived_once(deployment, name)
    assert deployment.epoch(name) == 1
    assert deployment.task(name, run_id, "replicate.submit")["try_number"] == 1


def test_a_task_that_the_next_scheduler_gives_to_another_worker_is_fenced_and_done_once(deployment: Deployment) -> None:
    """As it does with what it finds running once the one before is known to be dead (apache/airflow, LocalExecutor)."""
    name = "orphaned"
    deployment.write(name, range(80))
    with deployment.closed(name):
        run_id = deployment.begin(name)
        deployment.at_gate(name)
        task = processes.below(deployment.worker(name, run_id, "replicate.submit")[0].pid)
        dead = deployment.scheduler_job()
        restart(deployment, "scheduler")
        deployment.unheard_of(dead)
        deployment.airflow.until(lambda: deployment.epoch(name) == 2, PATIENCE, "nobody took the task over")
        deployment.airflow.until(lambda: not processes.alive(task), PATIENCE, "the first try goes on")

    deployment.succeeds(name, run_id)

    arrived_once(deployment, name)
    assert deployment.task(name, run_id, "replicate.submit")["try_number"] == 2


def test_a_triggerer_and_a_scheduler_killed_under_a_retry_that_waits_pick_it_up_again(deployment: Deployment) -> None:
    name = "unwatched"
    deployment.write(name, range(80))
    deployment.refuse(name, whether=True)
    run_id = deployment.begin(name)
    deployment.reaches(name, run_id, "replicate.retry", "deferred")

    restart(deployment, "triggerer", "scheduler")
    deployment.refuse(name, whether=False)
    deployment.succeeds(name, run_id)

    arrived_once(deployment, name)
    assert deployment.epoch(name) == 1, "the lease was kept alive meanwhile, or taken again by its own run"
    assert deployment.task(name, run_id, "replicate.retry")["try_number"] == 1


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

    arrived_once(deployment, name)
