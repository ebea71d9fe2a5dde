"""Many pipelines on one machine, with the local executor and with Celery: all end, share one Spark, and leave no files.

The tests depend on each other, in this order; ``make bench-many`` does the same with fifty pipelines on each executor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.services.fleet import Fleet
from tests.services.postgres import PostgresServer
from tests.services.redis import RedisServer
from tests.services.warm_spark import living, session_of

LOCAL, CELERY = "LocalExecutor", "CeleryExecutor"
COUNT = 6
SECONDS = 240.0
_CHILDREN = 2
_ENV = {
    "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(_CHILDREN),
    "AIRFLOW__CELERY__EXTRA_CELERY_CONFIG": '{"worker_max_tasks_per_child": 1}',
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Fleet]:
    """An Airflow with both executors, and pipelines for each."""
    home = tmp_path_factory.mktemp("fleet")
    with RedisServer() as redis:
        made = Fleet(home, postgres_server, {LOCAL: COUNT, CELERY: COUNT}, slots=4, broker=redis.url, env=_ENV)
        with made:
            yield made


def driver(fleet: Fleet) -> dict[str, Any]:
    """The state of the only driver, when it serves no run."""
    fleet.airflow.until(lambda: not fleet.warm.state()["runs"], SECONDS, "the driver still serves a run")
    return fleet.warm.state()


def test_all_pipelines_run_on_the_local_executor_and_share_one_spark(fleet: Fleet) -> None:
    names = fleet.pipelines[LOCAL]
    fleet.add_rows(names)

    runs = fleet.begin(names)
    fleet.await_end(runs, SECONDS)

    assert fleet.differences(names) == []
    assert fleet.cold(runs) == []
    assert driver(fleet)["runs_served"] == COUNT


def test_celery_workers_come_and_go_and_neither_runs_nor_spark_are_lost(fleet: Fleet) -> None:
    names = fleet.pipelines[CELERY]
    first, *others = names
    fleet.add_rows(names)
    before = driver(fleet)
    children: set[int] = set()

    def look() -> None:
        children.update(child.pid for child in psutil.Process(fleet.airflow.pid("worker")).children())

    with fleet.closed(first):
        runs = fleet.begin([first])
        fleet.airflow.until(lambda: fleet.waits(first), SECONDS, f"nobody wrote into {first}")
        runs |= fleet.begin(others)
        worker = fleet.airflow.end("worker")
        fleet.airflow.until(lambda: "Warm shutdown" in fleet.airflow.log("worker"), SECONDS, "the worker does not end")
        assert worker.poll() is None  # it waits for its task
        assert fleet.airflow.state(first, runs[first]) == "running"
    assert worker.wait(SECONDS) == 0
    assert fleet.airflow.wait(first, runs[first], SECONDS) == "success"
    assert driver(fleet)["pid"] == before["pid"]

    fleet.airflow.launch("worker")
    fleet.await_end(runs, SECONDS, look)

    assert len(children) > _CHILDREN  # they were recycled
    assert fleet.differences(names) == []
    assert fleet.cold(runs) == []
    after = driver(fleet)
    assert (after["pid"], after["runs_served"]) == (before["pid"], before["runs_served"] + COUNT)


def test_nothing_is_left_when_airflow_and_spark_have_ended(fleet: Fleet) -> None:
    spark = session_of(driver(fleet)["pid"])
    assert os.getpid() not in spark

    assert fleet.leave() == []
    assert living(spark) == []
