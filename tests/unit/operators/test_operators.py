"""Tests of the operators' decisions: the exception to raise, the task whose result counts, the branch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskDeferred,
)
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_provider_ckpt.assets import pipeline as pipeline_assets
from airflow_provider_ckpt.assets.pipeline import RUNS
from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.errors import (
    CkptError,
    ConfigError,
    EngineError,
    LeaseBusyError,
    LedgerUnavailableError,
    MissingConnectionError,
    SinkError,
    StaleEpochError,
)
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger_location import resolve_connection
from airflow_provider_ckpt.operators._task_failure import CkptTaskError, airflow_error
from airflow_provider_ckpt.operators.base import CkptOperator
from airflow_provider_ckpt.operators.outcomes import describe_dead_letter_location
from airflow_provider_ckpt.replication.run import acquire as acquiring
from airflow_provider_ckpt.replication.run import attach_or_reacquire as attaching
from airflow_provider_ckpt.replication.run.summary import RunSummary
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup
from tests.unit.task_groups.test_replication import PIPELINE


class HeldRun:
    """A run as ``attach_or_reacquire`` gives it, that has nothing to do but report."""

    def __init__(self, summary: RunSummary, due: list[datetime | None] | None = None) -> None:
        self.summary = summary
        self.epoch = summary.epoch
        self.released: bool | None = None
        self.executed: list[bool] = []
        self._due = due or [None]

    def next_due(self) -> datetime | None:
        return self._due[min(len(self.executed), len(self._due) - 1)]

    def execute(self, engine: object, *, rounds: bool, plan_on: bool = True) -> None:
        self.executed.append(rounds)

    def settle(self) -> None:
        """Nothing is left."""

    def finish(self, *, release: bool) -> RunSummary:
        self.released = release
        return self.summary

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


class Task:
    """A task of the group in a context of its own, on a run that is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, run: HeldRun, **handed: Any) -> None:
        with DAG("replication", schedule=None) as dag:
            CkptReplicationTaskGroup("orders", pipeline=PIPELINE, deferrable=handed.pop("deferrable", False))
        self.task: Any = dag.get_task(f"orders.{name}")
        self.pushed: dict[str, Any] = {}
        xcom = {f"orders.{task}": value for task, value in handed.items()}
        ti: Any = SimpleNamespace(
            xcom_pull=lambda task_ids, map_indexes: xcom.get(task_ids) if map_indexes == ti.map_index else None,
            xcom_push=lambda key, value: self.pushed.update({key: value}),
            task=self.task,
            map_index=-1,
            try_number=1,
            max_tries=self.task.retries,
        )
        self.context: Any = {
            "ti": ti,
            "task": self.task,
            "dag_run": SimpleNamespace(dag_id="replication", run_id="one"),
            "outlet_events": OutletEventAccessors(),
        }
        for connection in ("SHOP", "WAREHOUSE"):
            monkeypatch.setenv(f"AIRFLOW_CONN_{connection}", "postgres://localhost/db")
        monkeypatch.setattr(pipeline_assets, "_newest_extra", lambda asset: None)
        monkeypatch.setattr(attaching, "attach_or_reacquire", lambda setup, epoch: run)
        monkeypatch.setattr("airflow_provider_ckpt.operators.base.open_ledger", lambda _: NoLedger())

    @property
    def announced(self) -> list[tuple[str, Any]]:
        """The events that the run's own assets get: URI and checkpoint."""
        events = self.context["outlet_events"][RUNS].asset_alias_events
        return [(event.dest_asset_key.uri, event.extra["checkpoint"]) for event in events]

    def skipped_by(self, action: Any) -> set[str]:
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            action()
        return {task.removeprefix("orders.") for task, _ in skipped.value.tasks}


class NoLedger:
    """Opened and closed, never asked."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


def taken_over(setup: object, epoch: int) -> HeldRun:
    raise StaleEpochError("epoch 2 holds the lease.")


def handed(epoch: int = 1, planned: int = 3, tries: int = 1, **summary: Any) -> dict[str, Any]:
    so_far = RunSummary("orders", epoch, **summary).to_json()
    return {"epoch": epoch, "try_number": tries, "planned": planned, "summary": so_far}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConfigError("x"), AirflowFailException),
        (MissingConnectionError("x"), CkptTaskError),
        (StaleEpochError("x"), AirflowFailException),
        (SinkError("x", sqlstate="42501"), AirflowFailException),
        (SinkError("x", recoverable=True), CkptTaskError),
        (SinkError("x", is_outage=True), CkptTaskError),
        (LeaseBusyError("x"), CkptTaskError),
        (LedgerUnavailableError("x"), CkptTaskError),
        (EngineError("x"), CkptTaskError),
    ],
)
def test_only_what_may_pass_is_left_to_airflows_retries(error: CkptError, expected: type[Exception]) -> None:
    assert type(airflow_error(error)) is expected


def test_a_path_is_relative_to_the_dag_files_folder(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "name: p\nsource: {type: files, path: /in}\nsink: {type: delta, path: /out}\n"
        "transform: {decode: json, schema: id bigint}\n"
    )
    with DAG("d", schedule=None) as dag:
        task = CkptOperator(task_id="t", pipeline="p.yaml")
    dag.fileloc = str(tmp_path / "dag.py")

    assert task.load_pipeline().name == "p"


@pytest.mark.parametrize(
    "more", [{"sink": {**PIPELINE["sink"], "connection": "nowhere"}}, {"run": {"connection": "nowhere"}}]
)
def test_a_connection_that_is_not_defined_is_told_before_anything_is_begun(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    task = Task(monkeypatch, "plan", HeldRun(RunSummary("orders", 1)))
    task.task.pipeline = {**PIPELINE, **more}
    monkeypatch.setattr("airflow_provider_ckpt.operators.base.open_ledger", lambda _: pytest.fail("it began"))

    with (
        pytest.raises(CkptTaskError, match="the connection 'nowhere' is not defined"),
        task.task.setup_run(task.context),
    ):
        pass


def test_the_log_tells_of_keys_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, "plan", HeldRun(RunSummary("orders", 1)))
    task.task.pipeline = {**PIPELINE, "transform": {"schema": "id bigint"}}
    told: list[str] = []
    monkeypatch.setattr(task.task.log, "warning", lambda message, *parts: told.append(message % parts))

    with task.task.setup_run(task.context):
        assert told == ["pipeline orders: transform.schema has no effect without transform.decode"]


def test_a_killed_task_stops_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CkptOperator(task_id="t", pipeline=PIPELINE)
    task.on_kill()
    stopped: list[str] = []
    monkeypatch.setattr(task.make_engine(build(PIPELINE)), "kill", lambda: stopped.append("Spark"))

    task.on_kill()

    assert stopped == ["Spark"]


def test_a_task_that_is_killed_before_it_has_an_engine_starts_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CkptOperator(task_id="t", pipeline=PIPELINE)
    task.on_kill()

    with pytest.raises(EngineError, match="Spark was stopped"):
        task.make_engine(build(PIPELINE)).start(None)  # type: ignore[arg-type]


def test_submit_is_skipped_where_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    run = HeldRun(RunSummary("orders", 1))
    task = Task(monkeypatch, "submit", run, plan=handed(planned=0))

    with pytest.raises(AirflowSkipException, match="Spark is not started"):
        task.task.execute(task.context)

    assert run.executed == []


def test_settle_takes_plans_word_where_submit_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, "settle", HeldRun(RunSummary("orders", 1)), plan=handed(planned=0))

    assert task.task.execute(task.context)["summary"]["route"] == ["done"]


def test_a_cleared_run_is_not_misled_by_what_an_older_epoch_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, "dead_letters", HeldRun(RunSummary("orders", 2)), route=handed(2), retry=handed(1))

    assert task.task.previous_state(task.context)["epoch"] == 2


def test_a_task_that_was_taken_over_fails_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, "settle", HeldRun(RunSummary("orders", 1)), submit=handed())
    monkeypatch.setattr(attaching, "attach_or_reacquire", taken_over)

    with pytest.raises(AirflowFailException, match="epoch 2 holds the lease"):
        task.task.execute(task.context)


def test_a_task_that_runs_once_more_acquires_anew_and_passes_that_epoch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(monkeypatch, "settle", HeldRun(RunSummary("orders", 1)), submit=handed(epoch=1))
    task.context["ti"].try_number = 2
    monkeypatch.setattr(acquiring, "acquire", lambda setup: HeldRun(RunSummary("orders", 3)))

    state = task.task.execute(task.context)

    assert state["epoch"] == 3, "the try before it could release the lease of epoch 1"
    assert state["try_number"] == 2


@pytest.mark.parametrize("cleared", [0, 1])
def test_a_task_that_is_retried_as_often_as_plan_was_acquires_anew_too(
    monkeypatch: pytest.MonkeyPatch, cleared: int
) -> None:
    tries = cleared + 2
    task = Task(monkeypatch, "settle", HeldRun(RunSummary("orders", 1)), submit=handed(epoch=1, tries=tries))
    task.context["ti"].try_number = tries
    task.context["ti"].max_tries += cleared
    monkeypatch.setattr(acquiring, "acquire", lambda setup: HeldRun(RunSummary("orders", 3)))

    assert task.task.execute(task.context)["epoch"] == 3, "the try before it could release the lease of epoch 1"


@pytest.mark.parametrize("lease_is_lost", [False, True])
def test_a_task_of_a_cleared_run_continues_the_lease_of_that_run_unless_it_is_lost(
    monkeypatch: pytest.MonkeyPatch, lease_is_lost: bool
) -> None:
    task = Task(monkeypatch, "settle", HeldRun(RunSummary("orders", 2)), submit=handed(epoch=2, tries=2))
    task.context["ti"].try_number = 2
    task.context["ti"].max_tries += 1
    monkeypatch.setattr(acquiring, "acquire", lambda setup: HeldRun(RunSummary("orders", 3)))
    if lease_is_lost:
        monkeypatch.setattr(attaching, "attach_or_reacquire", taken_over)

    assert task.task.execute(task.context)["epoch"] == (3 if lease_is_lost else 2)


def test_dead_letters_of_an_earlier_task_are_not_forgotten_by_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = handed(records=Counts(10, 9, 0, 1), batches=2)
    task = Task(monkeypatch, "settle", HeldRun(RunSummary("orders", 1, route=["done"])), submit=before)

    summary = task.task.execute(task.context)["summary"]

    assert summary["route"] == ["dead_letters", "done"]
    assert summary["records"]["dead_lettered"] == 1
    assert summary["batches"] == 2


def test_route_releases_the_lease_and_skips_what_it_did_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    run = HeldRun(RunSummary("orders", 1, route=["done"], checkpoint={"p": {"before": 0, "after": 9}}))
    task = Task(monkeypatch, "route", run, settle=handed(route=["done"]))

    assert task.skipped_by(lambda: task.task.execute(task.context)) == {"retry", "dead_letters", "hold"}
    assert run.released is True
    assert task.pushed["return_value"]["summary"]["route"] == ["done"]
    assert task.announced == [("ckpt://orders", {"p": {"before": 0, "after": 9}})]


def test_inside_an_expanded_group_route_skips_what_its_own_member_did_not_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(monkeypatch, "route", HeldRun(RunSummary("orders", 1, route=["done"])), settle=handed(route=["done"]))
    task.context["ti"].map_index = 2

    with pytest.raises(DownstreamTasksSkipped) as skipped:
        task.task.execute(task.context)

    assert set(skipped.value.tasks) == {(f"orders.{leaf}", 2) for leaf in ("retry", "dead_letters", "hold")}


def test_route_leaves_the_lease_and_every_leaf_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    run = HeldRun(RunSummary("orders", 1, route=["retry"]))
    task = Task(monkeypatch, "route", run, settle=handed(route=["retry"]))

    returned = task.task.execute(task.context)

    assert returned == task.pushed["return_value"]
    assert returned["summary"]["route"] == ["retry"]
    assert run.released is False
    assert task.announced == []


def test_retry_runs_the_later_rounds_in_place_and_branches_on_the_run_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = HeldRun(RunSummary("orders", 1, route=["done"]))
    task = Task(monkeypatch, "retry", run, route=handed(records=Counts(10, 9, 0, 1), route=["dead_letters", "retry"]))

    assert task.skipped_by(lambda: task.task.execute(task.context)) == {"hold"}
    assert run.executed == [True]
    assert run.released is True
    assert [uri for uri, _ in task.announced] == ["ckpt://orders"]


def test_retry_defers_to_the_next_round_and_keeps_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    due = datetime.now(UTC) + timedelta(minutes=1)
    run = HeldRun(RunSummary("orders", 1, route=["retry"]), [due])
    task = Task(monkeypatch, "retry", run, route=handed(route=["retry"]), deferrable=True)

    with pytest.raises(TaskDeferred) as deferred:
        task.task.execute(task.context)

    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_provider_ckpt.triggers.next_round.CkptNextRoundTrigger"
    assert arguments == {
        "pipeline": "orders",
        "epoch": 1,
        "owner": "dag:replication/one/orders/orders",
        "ckpt_conn_id": "ckpt_default",
        "moment": due,
        "every": 20.0,
    }
    assert deferred.value.method_name == "execute_complete"
    assert run.executed == []
    assert run.released is False


@pytest.mark.parametrize("seconds", [0, 8])
def test_retry_resumes_when_the_round_is_due_or_nearly_so(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    run = HeldRun(RunSummary("orders", 1, route=["done"]), [due, None])
    task = Task(monkeypatch, "retry", run, deferrable=True)

    skipped = task.skipped_by(lambda: task.task.execute_complete(task.context, {"due": "now"}, handed(route=["retry"])))

    assert skipped == {"dead_letters", "hold"}
    assert run.executed == [False]
    assert run.released is True


def test_retry_fails_for_good_when_another_run_took_over_while_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    run = HeldRun(RunSummary("orders", 1))
    task = Task(monkeypatch, "retry", run, deferrable=True)
    task.context["ti"].try_number = 2

    with pytest.raises(AirflowFailException, match="epoch 2 was granted"):
        task.task.execute_complete(task.context, {"stale": "epoch 2 was granted to another"}, handed(route=["retry"]))

    assert run.executed == []


def test_what_is_left_when_the_time_budget_is_over_chooses_no_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    run = HeldRun(RunSummary("orders", 1, route=["retry"]))
    task = Task(monkeypatch, "retry", run, route=handed(route=["retry"]))

    assert task.skipped_by(lambda: task.task.execute(task.context)) == {"done", "dead_letters", "hold"}


@pytest.mark.parametrize("fails", [True, False])
def test_hold_fails_the_run_where_the_pipeline_says_so(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    run = HeldRun(RunSummary("orders", 1))
    task = Task(monkeypatch, "hold", run, route=handed(batches_by_state={"held": 2}))
    task.task.pipeline = {**PIPELINE, "run": {"fail_on_hold": fails}}

    if fails:
        with pytest.raises(AirflowFailException, match="2 batches are held"):
            task.task.execute(task.context)
    else:
        assert task.task.execute(task.context) == {"held": 2}


def test_the_dead_letters_task_counts_them_and_says_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = handed(records=Counts(10, 9, 0, 1), errors={"Sink": 1})
    task = Task(monkeypatch, "dead_letters", HeldRun(RunSummary("orders", 1)), route=before)

    told = task.task.execute(task.context)

    assert told["dead_lettered"] == 1
    assert told["errors"] == {"Sink": 1}
    assert told["where"] == "table ckpt_sink_dead_letter of connection warehouse"


@pytest.mark.parametrize(
    ("path", "connection", "place"),
    [
        ("/lake/flights", None, "/lake/flights.dead_letters/flights"),
        ("file:///lake/a%20b", None, "/lake/a b.dead_letters/flights"),
        ("tables/flights", "mount", "/mnt/share/tables/flights.dead_letters/flights"),
    ],
)
def test_dead_letters_of_a_delta_table_are_beside_it(
    monkeypatch: pytest.MonkeyPatch, path: str, connection: str | None, place: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MOUNT", '{"conn_type": "fs", "extra": {"path": "/mnt/share"}}')
    pipeline = build(
        {
            "name": "flights",
            "source": {"type": "files", "path": "/in"},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "delta", "path": path, "connection": connection},
        }
    )
    assert describe_dead_letter_location(pipeline, resolve_connection) == f"the JSON lines under {place}"


@pytest.mark.parametrize(
    ("sink", "queue", "place"),
    [
        (
            {"type": "kafka", "connection": "stream", "topic": "t"},
            {"topic": "dead"},
            "topic dead of connection stream",
        ),
        ({"type": "delta", "path": "/t"}, {"brokers": "b:9092"}, "topic streamforge-dlq of b:9092"),
        (
            {"type": "delta", "path": "/t"},
            {"sink": "postgres", "connection": "archive"},
            "table ckpt_dead_letter of connection archive",
        ),
        (
            {"type": "postgres", "connection": "lake", "table": "a.b"},
            {"sink": "files", "path": "/dead"},
            "the JSON lines under /dead/orders",
        ),
        (
            {"type": "iceberg", "connection": "lake", "table": "shop.orders"},
            {},
            "the JSON lines beside the location of table shop.orders, catalog lake",
        ),
    ],
)
def test_a_person_is_told_of_another_place_for_dead_letters(
    sink: dict[str, str], queue: dict[str, str], place: str
) -> None:
    source = {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"}
    pipeline = build({"name": "orders", "source": source, "sink": sink, "dead_letter_queue": queue})

    assert describe_dead_letter_location(pipeline, resolve_connection) == place
