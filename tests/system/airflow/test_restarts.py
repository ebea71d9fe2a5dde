"""Scheduler and triggerer are killed during three runs and restarted: each record is delivered once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.services import processes
from tests.services.processes import Process
from tests.system.airflow.deployment import PATIENCE, Deployment

HEADLESS, ORPHANED, UNWATCHED = "headless", "orphaned", "unwatched"


@dataclass(frozen=True)
class Restarted:
    """Three runs, and what has become of them by the restart.

    :param runs: their ids by pipeline
    :param tasks: processes below the workers that wait at the closed gates of two of them: the task and its Spark
    :param gates: opens the gate of a pipeline when it is closed
    :param dead: the job of the scheduler that was killed
    """

    runs: Mapping[str, str]
    tasks: Mapping[str, list[Process]]
    gates: Mapping[str, ExitStack]
    dead: int


@pytest.fixture(scope="module")
def restarted(deployment: Deployment) -> Iterator[Restarted]:
    """Scheduler and triggerer are killed and started once all are dead.

    Spark delivers for ``headless`` and ``orphaned`` at that time, and a retry of ``unwatched`` waits in the triggerer.
    """
    runs: dict[str, str] = {}
    tasks: dict[str, list[Process]] = {}
    gates: dict[str, ExitStack] = {}
    with ExitStack() as every:
        for name in (HEADLESS, ORPHANED):
            gates[name] = every.enter_context(ExitStack())
            gates[name].enter_context(deployment.closed(name))
            deployment.write(name, range(80))
            runs[name] = deployment.begin(name)
        for name in (HEADLESS, ORPHANED):
            deployment.at_gate(name)
            worker, *_ = deployment.worker(name, runs[name], "replicate.submit")
            tasks[name] = processes.below(worker.pid)
        deployment.write(UNWATCHED, range(80))
        deployment.refuse(UNWATCHED, whether=True)
        runs[UNWATCHED] = deployment.begin(UNWATCHED)
        deployment.reaches(UNWATCHED, runs[UNWATCHED], "replicate.retry", "deferred")
        dead = deployment.scheduler_job()
        for service in ("triggerer", "scheduler"):
            deployment.kill(service)
        for service in ("triggerer", "scheduler"):
            deployment.airflow.launch(service)
        deployment.refuse(UNWATCHED, whether=False)
        yield Restarted(runs, tasks, gates, dead)


def arrived_once(deployment: Deployment, name: str, number: int = 80) -> None:
    """All records are there, and nobody holds the lease."""
    seen = deployment.trace(name)
    assert seen.ids == list(range(number))
    assert not seen.held


def test_a_scheduler_killed_while_spark_delivers_does_not_disturb_it_and_the_next_one_goes_on(
    deployment: Deployment, restarted: Restarted
) -> None:
    """The executor's workers outlive a killed scheduler."""
    assert processes.alive(restarted.tasks[HEADLESS])
    restarted.gates[HEADLESS].close()

    deployment.succeeds(HEADLESS, restarted.runs[HEADLESS])

    arrived_once(deployment, HEADLESS)
    assert deployment.epoch(HEADLESS) == 1
    assert deployment.task(HEADLESS, restarted.runs[HEADLESS], "replicate.submit")["try_number"] == 1


def test_a_triggerer_and_a_scheduler_killed_under_a_retry_that_waits_pick_it_up_again(
    deployment: Deployment, restarted: Restarted
) -> None:
    deployment.succeeds(UNWATCHED, restarted.runs[UNWATCHED])

    arrived_once(deployment, UNWATCHED)
    assert deployment.epoch(UNWATCHED) == 1, "the lease was kept alive meanwhile, or taken again by its own run"
    assert deployment.task(UNWATCHED, restarted.runs[UNWATCHED], "replicate.retry")["try_number"] == 1


def test_a_task_that_the_next_scheduler_gives_to_another_worker_is_fenced_and_done_once(
    deployment: Deployment, restarted: Restarted
) -> None:
    """As it does with what it finds running once the one before is known to be dead (apache/airflow, LocalExecutor)."""
    assert deployment.epoch(ORPHANED) == 1
    deployment.unheard_of(restarted.dead)
    deployment.airflow.until(lambda: deployment.epoch(ORPHANED) == 2, PATIENCE, "nobody took the task over")
    deployment.airflow.until(lambda: not processes.alive(restarted.tasks[ORPHANED]), PATIENCE, "the first try goes on")
    restarted.gates[ORPHANED].close()

    deployment.succeeds(ORPHANED, restarted.runs[ORPHANED])

    arrived_once(deployment, ORPHANED)
    assert deployment.task(ORPHANED, restarted.runs[ORPHANED], "replicate.submit")["try_number"] == 2
