"""A killed task cancels its attempts and releases its lease in a real ledger, if the ledger answers in time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.operators.base import CkptOperator
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.run import Run
from airflow_provider_ckpt.replication.setup import PipelineContext, utcnow
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup
from tests.services.ledgers import new_ledger_file


class Deployment:
    """A task of a pipeline with one file to deliver, and the ledger that it uses."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ledger.db"
        (folder / "in").mkdir()
        (folder / "in" / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
        self.pipeline: dict[str, Any] = {
            "name": "people",
            "source": {"type": "files", "path": str(folder / "in")},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "delta", "path": str(folder / "out")},
            "lease": {"on_busy": "fail"},
        }
        self.context: Any = {
            "dag_run": SimpleNamespace(dag_id="replication", run_id="one"),
            "ti": SimpleNamespace(map_index=-1),
        }
        self.url = new_ledger_file(self.file)

    def task(self, name: str = "t") -> CkptOperator:
        return CkptOperator(task_id=name, pipeline=self.pipeline)

    def partition(self) -> Any:
        with Ledger.open(self.url) as ledger:
            (record,) = ledger.partitions("people").values()
            return record.partition

    def states(self) -> list[tuple[BatchState, bool]]:
        return [(batch.state, batch.cancelled) for batch in self.partition().batches.values()]

    def holder(self) -> str | None:
        with Ledger.open(self.url) as ledger:
            lease = ledger.status("people")["lease"]
            return str(lease["owner"]) if lease["held"] else None


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """The ledger is the one that the default connection names."""
    found = Deployment(tmp_path)
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", f"ckpt://{found.file}")
    return found


def work(task: CkptOperator, deployment: Deployment, action: Callable[[PipelineContext, Run], None]) -> None:
    """As an operator's ``execute`` does."""
    with task.setup_run(deployment.context) as setup, acquire(setup) as run:
        action(setup, run)


def send(run: Run) -> None:
    """Plan, and begin what was planned."""
    assert run.plan() == 1
    begin(run)


def begin(run: Run) -> None:
    run.ledger.begin(run.lease, [batch.key for batch in run.planned()], now=utcnow(), run="one")


def test_spark_is_stopped_first_then_the_attempts_are_cancelled_and_the_lease_is_free(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    task = deployment.task()

    def action(setup: PipelineContext, run: Run) -> None:
        send(run)
        monkeypatch.setattr(task.make_engine(setup.pipeline), "kill", lambda: seen.append(deployment.states()))
        task.on_kill()
        seen.append(deployment.states())
        seen.append(deployment.holder())
        begin(run)

    with pytest.raises(AirflowException, match="The task was killed") as raised:
        work(task, deployment, action)

    assert seen == [[(BatchState.IN_FLIGHT, False)], [(BatchState.PLANNED, True)], None]
    assert not isinstance(raised.value, AirflowFailException)


def test_the_next_run_waits_for_nobody_and_begins_the_cancelled_batches_again(deployment: Deployment) -> None:
    killed = deployment.task()

    def action(setup: PipelineContext, run: Run) -> None:
        send(run)
        killed.on_kill()
        run.plan()

    with pytest.raises(AirflowException):
        work(killed, deployment, action)
    assert deployment.partition().cancellation_watermark == 0

    def again(setup: PipelineContext, run: Run) -> None:
        begin(run)
        assert deployment.states() == [(BatchState.IN_FLIGHT, False)]
        assert deployment.partition().cancellation_watermark is None

    deployment.context["dag_run"].run_id = "two"
    work(deployment.task("next"), deployment, again)


def test_a_ledger_that_does_not_answer_holds_nobody_up(deployment: Deployment) -> None:
    task = deployment.task()

    def action(setup: PipelineContext, run: Run) -> None:
        send(run)
        busy = sqlite3.connect(deployment.file, isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")

        started = time.monotonic()
        task.on_kill()
        took = time.monotonic() - started
        states = deployment.states()
        busy.rollback()
        busy.close()

        assert 1.5 < took < 10, "SQLite itself waits for half a minute"
        assert states == [(BatchState.IN_FLIGHT, False)]

    work(task, deployment, action)


def test_a_task_that_lost_its_lease_cancels_nothing_of_its_successor(deployment: Deployment) -> None:
    zombie = deployment.task()

    def action(setup: PipelineContext, run: Run) -> None:
        work(deployment.task(), deployment, succeed)
        run.plan()

    def succeed(setup: PipelineContext, run: Run) -> None:
        send(run)

        zombie.on_kill()

        assert deployment.states() == [(BatchState.IN_FLIGHT, False)]
        assert deployment.holder() == setup.owner

    with pytest.raises(AirflowException, match="The task was killed"):
        work(zombie, deployment, action)


@pytest.mark.parametrize(("name", "map_index"), [("other", -1), ("t", 1)])
def test_two_tasks_of_one_dag_run_do_not_shut_each_other_out(deployment: Deployment, name: str, map_index: int) -> None:
    def action(setup: PipelineContext, run: Run) -> None:
        deployment.context["ti"].map_index = map_index
        with pytest.raises(AirflowException, match="another run holds the lease: dag:replication/one/people/t,"):
            work(deployment.task(name), deployment, lambda setup, run: None)
        send(run)

    work(deployment.task("t"), deployment, action)


def test_a_task_group_s_tasks_hold_one_lease(deployment: Deployment) -> None:
    with DAG("replication", schedule=None) as dag:
        CkptReplicationTaskGroup("people", pipeline=deployment.pipeline)
    deployment.context["ti"].map_index = 2
    held = []
    for name in ("plan", "retry"):
        with cast("CkptOperator", dag.get_task(f"people.{name}")).setup_run(deployment.context) as setup:
            held.append(setup.owner)

    assert held == ["dag:replication/one/people/people[2]"] * 2


def test_a_task_that_is_over_leaves_the_lease_to_the_task_that_carries_it_on(deployment: Deployment) -> None:
    over = deployment.task()
    work(over, deployment, lambda setup, run: None)
    holder = deployment.holder()

    over.on_kill()

    assert holder is not None
    assert deployment.holder() == holder
