"""Scheduler and triggerer are killed and started anew under a run, or the DAG is paused: each record arrives once."""

from __future__ import annotations

from urllib.parse import quote

from tests.services import processes
from tests.system.airflow.scene import Scene


def arrived_once(scene: Scene, name: str, number: int = 80) -> None:
    """All records are there, and nobody holds the lease."""
    seen = scene.trace(name)
    assert seen.ids == list(range(number))
    assert not seen.held


def restart(scene: Scene, *services: str) -> None:
    """Kill services, and start them again once all are dead."""
    for service in services:
        scene.kill(service)
    for service in services:
        scene.airflow.launch(service)


def test_a_scheduler_killed_while_spark_delivers_does_not_disturb_it_and_the_next_one_goes_on(scene: Scene) -> None:
    """The executor's workers outlive a killed scheduler."""
    name = "headless"
    scene.write(name, range(80))
    with scene.closed(name):
        run_id = scene.begin(name)
        scene.at_gate(name)
        spark = processes.below(scene.worker(name, run_id, "replicate.submit")[0].pid)
        restart(scene, "scheduler")
        assert processes.alive(spark)

    scene.succeeds(name, run_id)

    arrived_once(scene, name)
    assert scene.epoch(name) == 1
    assert scene.task(name, run_id, "replicate.submit")["try_number"] == 1


def test_a_task_that_the_next_scheduler_gives_to_another_worker_is_fenced_and_done_once(scene: Scene) -> None:
    """As it does with what it finds running once the one before is known to be dead (apache/airflow, LocalExecutor)."""
    name = "orphaned"
    scene.write(name, range(80))
    with scene.closed(name):
        run_id = scene.begin(name)
        scene.at_gate(name)
        task = processes.below(scene.worker(name, run_id, "replicate.submit")[0].pid)
        dead = scene.scheduler_job()
        restart(scene, "scheduler")
        scene.unheard_of(dead)
        scene.airflow.until(lambda: scene.epoch(name) == 2, 60, "nobody took the task over")
        scene.airflow.until(lambda: not processes.alive(task), 60, "the first try goes on")

    scene.succeeds(name, run_id)

    arrived_once(scene, name)
    assert scene.task(name, run_id, "replicate.submit")["try_number"] == 2


def test_a_triggerer_and_a_scheduler_killed_under_a_retry_that_waits_pick_it_up_again(scene: Scene) -> None:
    name = "unwatched"
    scene.write(name, range(80))
    scene.refuse(name, whether=True)
    run_id = scene.begin(name)
    scene.reaches(name, run_id, "replicate.retry", "deferred")

    restart(scene, "triggerer", "scheduler")
    scene.refuse(name, whether=False)
    scene.succeeds(name, run_id)

    arrived_once(scene, name)
    assert scene.epoch(name) == 1, "the lease was kept alive meanwhile, or taken again by its own run"
    assert scene.task(name, run_id, "replicate.retry")["try_number"] == 1


def test_a_paused_dag_ends_the_task_that_runs_and_goes_on_where_it_stood(scene: Scene) -> None:
    name = "rested"
    scene.write(name, range(80))
    with scene.closed(name):
        run_id = scene.begin(name)
        scene.at_gate(name)
        scene.airflow.api("PATCH", f"/dags/{quote(name)}", {"is_paused": True})
    scene.reaches(name, run_id, "replicate.submit", "success")
    scene.let_go(name)
    assert scene.task(name, run_id, "replicate.settle")["state"] is None
    assert scene.checkpoint(name) > 0

    scene.airflow.api("PATCH", f"/dags/{quote(name)}", {"is_paused": False})
    scene.succeeds(name, run_id)

    arrived_once(scene, name)
