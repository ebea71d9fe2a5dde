"""Runs of several tables in one process: their leases are renewed together, and they take turns by records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import CkptError, LeaseBusyError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.engines import several_runs
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.engines.several_runs import RunResult
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from airflow_provider_ckpt.replication.setup import PipelineContext
from airflow_provider_ckpt.replication.turn import Turn
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import execute, make_source, make_target, scalar

BATCH = 10
TTL = timedelta(seconds=2)
SERIALIZATION_FAILURE, DISK_FULL = "40001", "53100"


class Tables:
    """Tables of one database, each of them a pipeline with a lease of 2 s, whose targets can be slow or refuse rows.

    :param orders: database and Spark
    """

    def __init__(self, orders: Replication) -> None:
        self._orders = orders
        self.dsn, self.ledger = orders.dsn, orders.ledger
        self.rows: dict[str, int] = {}
        execute(
            self.dsn,
            "CREATE TABLE pace (name text PRIMARY KEY, seconds float8, refusal text)",
            """
            CREATE FUNCTION pace() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE found pace; BEGIN
                SELECT * INTO found FROM pace WHERE name = TG_TABLE_NAME;
                PERFORM pg_sleep(found.seconds);
                IF found.refusal IS NOT NULL THEN
                    RAISE EXCEPTION 'not now' USING ERRCODE = found.refusal;
                END IF;
                RETURN NULL;
            END $$
            """,
        )

    def add(self, name: str, rows: int, *, seconds: float = 0.0, refusal: str | None = None) -> None:
        """Create a table with rows, each batch of which takes some time, or is refused with an SQLSTATE."""
        self.rows[name] = rows
        make_source(self.dsn, f"{name}_source", rows)
        make_target(self.dsn, name)
        code = "NULL" if refusal is None else f"'{refusal}'"
        execute(
            self.dsn,
            f"INSERT INTO pace VALUES ('{name}', {seconds}, {code})",
            f"CREATE TRIGGER pace AFTER INSERT ON {name} FOR EACH STATEMENT EXECUTE FUNCTION pace()",
        )

    def setups(self, **parts: Any) -> dict[str, PipelineContext]:
        """Return the context of each table's run.

        :param parts: keys that are merged into the declarations
        """
        setups = {}
        for name in self.rows:
            document = orders_pipeline(name, source=f"{name}_source", target=name)
            strategy = {"commit_interval": BATCH, "commit_mode": "sync"}
            replication = replace(self._orders, document=document)
            changed = replication.changed(commit_strategy=strategy, lease={"ttl": "2s"}, **parts)
            setups[name] = changed.setup(f"task:{name}")
        return setups

    @contextmanager
    def running(self, at_once: int, **parts: Any) -> Iterator[dict[str, RunResult]]:
        """Run the tables in turns; the results are there after the block, at whose end nothing is slow or refused."""
        ended: dict[str, RunResult] = {}
        setups = self.setups(**parts)
        thread = threading.Thread(target=lambda: ended.update(several_runs.run_several(setups, at_once, lanes_each=1)))
        thread.start()
        try:
            yield ended
        finally:
            execute(self.dsn, "UPDATE pace SET seconds = 0, refusal = NULL")
            thread.join(120)
        assert not thread.is_alive()

    def delivered(self, name: str) -> int:
        """Return the number of rows in a table's target."""
        found: int = scalar(self.dsn, f"SELECT count(*) FROM {name}")
        return found

    def is_done(self, *names: str) -> bool:
        """Return whether all rows of tables are in their targets."""
        return all(self.delivered(name) == self.rows[name] for name in names)

    def differences(self) -> list[str]:
        """Return the tables whose target is not the source."""
        query = "SELECT count(*) FROM (SELECT * FROM {0}_source EXCEPT SELECT * FROM {0}) x"
        return [name for name in self.rows if not self.is_done(name) or scalar(self.dsn, query.format(name))]


@pytest.fixture
def tables(orders: Replication, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """No table yet; runs share the test's Spark session, and a turn is one batch."""
    monkeypatch.setattr(several_runs, "make_engine", lambda _: SessionEngine(orders.spark))
    monkeypatch.setattr(several_runs, "starts_own_spark", lambda _: False)
    monkeypatch.setattr(several_runs, "_QUANTUM", BATCH)
    return Tables(orders)


@pytest.fixture
def renewals(tables: Tables) -> Iterator[Sequence[str]]:
    """Parameters of the statements by which leases are renewed."""
    sent: list[str] = []

    def note(*args: object) -> None:
        if "SKIP LOCKED" in str(args[2]):
            sent.append(str(args[3]))

    sa.event.listen(tables.ledger._engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(tables.ledger._engine, "before_cursor_execute", note)


def await_(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # each look at the database takes a connection


def test_a_run_whose_lease_is_lost_stops_and_the_other_goes_on(tables: Tables, renewals: Sequence[str]) -> None:
    tables.add("a", 200, seconds=1.0)
    tables.add("b", 200, seconds=1.0)
    with tables.running(2) as ended:
        await_(lambda: all(tables.delivered(name) > 0 for name in tables.rows))
        await_(lambda: any('"a"' in sent and '"b"' in sent for sent in renewals))
        time.sleep(TTL.total_seconds())
        for name in tables.rows:
            with pytest.raises(LeaseBusyError):
                tables.ledger.acquire(name, "another", TTL)
        lost = tables.ledger.acquire("b", "another", timedelta(minutes=5), force=True)
        time.sleep(TTL.total_seconds())  # one more renewal tells the loss

    assert {name: result.state for name, result in ended.items()} == {"a": "done", "b": "failed"}
    assert f"epoch {lost.epoch} was granted to another" in str(ended["b"].error)
    assert tables.is_done("a")
    tables.ledger.release(lost)
    again = several_runs.run_several({"b": tables.setups()["b"]})
    assert again["b"].state == "done", again["b"].error
    assert tables.differences() == []


def test_small_tables_do_not_wait_for_large_ones_that_began_before(tables: Tables, renewals: Sequence[str]) -> None:
    large, small = ["large_1", "large_2"], ["small_1", "small_2", "small_3"]
    for name in large:
        tables.add(name, 300, seconds=1.0)
    for name in small:
        tables.add(name, 10)

    with tables.running(2) as ended:
        await_(lambda: tables.is_done(*small))
        assert all(0 < tables.delivered(name) < 150 for name in large)
        await_(lambda: any(all(f'"{name}"' in sent for name in large) for sent in renewals))

    assert {result.state for result in ended.values()} == {"done"}
    assert tables.differences() == []


def test_a_table_begins_although_those_in_progress_have_much_to_do(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_runs, "_TURNS_EACH", 2)
    large = ["large_1", "large_2"]
    for name in large:
        tables.add(name, 300, seconds=0.2)
    tables.add("late", 10)

    with tables.running(1) as ended:
        await_(lambda: tables.is_done("late"))
        assert all(tables.delivered(name) < 100 for name in large)
        await_(lambda: all(tables.delivered(name) >= 100 for name in large))

    assert {result.state for result in ended.values()} == {"done"}
    assert tables.differences() == []
    summaries = {name: result.summary for name, result in ended.items() if result.summary is not None}
    assert {name: summary["records"]["delivered"] for name, summary in summaries.items()} == tables.rows
    assert max(summary["epoch"] for summary in summaries.values()) > 1, "a run that pauses releases its lease"


def test_a_table_begins_although_those_in_progress_wait_for_a_retry(tables: Tables) -> None:
    refused = ["refused_1", "refused_2"]
    for name in refused:
        tables.add(name, 20, refusal=SERIALIZATION_FAILURE)
    tables.add("other", 50)

    retry = {"max_attempts": 9, "initial_delay_ms": 30_000}
    with tables.running(1, retry=retry) as ended:
        started = time.monotonic()
        await_(lambda: tables.is_done("other"))
        assert time.monotonic() - started < 30
        assert [tables.delivered(name) for name in refused] == [0, 0]

    assert {result.state for result in ended.values()} == {"done"}
    assert tables.differences() == []


def test_a_table_goes_on_after_an_outage_during_which_others_worked(tables: Tables) -> None:
    tables.add("down", 20, refusal=DISK_FULL)
    others = ["other_1", "other_2"]
    for name in others:
        tables.add(name, 100, seconds=0.3)

    with tables.running(1, retry={"max_attempts": 9, "initial_delay_ms": 500, "max_delay_ms": 2000}) as ended:
        await_(lambda: tables.is_done(*others))

    assert {name: result.error for name, result in ended.items()} == dict.fromkeys(tables.rows)
    assert tables.differences() == []


def test_a_table_whose_batch_fails_leaves_its_turn_until_the_retry(tables: Tables) -> None:
    tables.add("refused", 20, refusal=SERIALIZATION_FAILURE)
    tables.add("other", 100)

    retry = {"max_attempts": 9, "initial_delay_ms": 5000}
    with tables.running(1, retry=retry) as ended:
        await_(lambda: tables.is_done("other"))
        assert tables.delivered("refused") == 0

    assert {result.state for result in ended.values()} == {"done"}
    assert tables.differences() == []


def test_a_table_whose_lease_is_busy_leaves_its_turn(tables: Tables) -> None:
    tables.add("busy", 20)
    tables.add("other", 20)
    held = tables.ledger.acquire("busy", "another", timedelta(minutes=5))

    with tables.running(1) as ended:
        await_(lambda: tables.is_done("other"))
        tables.ledger.release(held)

    assert {result.state for result in ended.values()} == {"done"}
    assert tables.differences() == []


class OthersFirst(Turn):
    """Turn that others have until it is granted.

    :ivar granted: whether it is granted
    :ivar asked: whether the run has asked for it
    """

    def __init__(self) -> None:
        super().__init__()
        self.granted = threading.Event()
        self.asked = threading.Event()

    def take(self, seconds: float) -> bool:
        """Wait for the turn."""
        self.asked.set()
        return self.granted.wait(seconds)


def test_the_wait_for_a_turn_does_not_count_against_the_time_budget(orders: Replication) -> None:
    turn = OthersFirst()

    def grant_late() -> None:
        assert turn.asked.wait(60)
        time.sleep(14)
        turn.granted.set()

    threading.Thread(target=grant_late).start()
    setup = replace(orders.changed(run={"time_budget": "12s"}).setup(), turn=turn)

    summary = replicate(setup, SessionEngine(orders.spark))

    assert summary.records == Counts(1000, 1000, 0, 0)
    assert 13 < summary.steps["turn"] < summary.seconds


class AlwaysPauses(Turn):
    """Turn of a run that is to pause at once."""

    def must_pause(self, seconds_used: float, seconds_idle: float) -> bool:
        """Pause."""
        self.is_paused = True
        return True


def test_a_run_that_pauses_has_released_its_lease(orders: Replication) -> None:
    setup = replace(orders.setup(), turn=AlwaysPauses())
    summary = replicate(setup, SessionEngine(orders.spark))

    assert (summary.records, summary.batches_by_state) == (Counts(), {"planned": 10})
    assert orders.run().records == Counts(1000, 1000, 0, 0)


def test_a_run_that_pauses_leaves_the_error_of_the_run_before(orders: Replication) -> None:
    replicate(replace(orders.setup(), turn=AlwaysPauses()), SessionEngine(orders.spark))
    execute(orders.dsn, "ALTER TABLE target RENAME TO elsewhere")
    with pytest.raises(CkptError, match="target"):
        orders.run()
    failed = orders.ledger.failed_runs("orders")
    execute(orders.dsn, "ALTER TABLE elsewhere RENAME TO target")

    replicate(replace(orders.setup(), turn=AlwaysPauses()), SessionEngine(orders.spark))

    assert set(failed) == {"orders"}
    assert orders.ledger.failed_runs("orders") == failed
    orders.run()
    assert orders.ledger.failed_runs("orders") == {}


def test_a_run_that_paused_does_not_get_its_time_budget_again(orders: Replication) -> None:
    turn = Turn()
    turn.seconds_used = 60.0
    setup = replace(orders.changed(run={"time_budget": "60s"}).setup(), turn=turn)

    assert replicate(setup, SessionEngine(orders.spark)).records == Counts()


def test_a_run_in_an_outage_does_not_pause(orders: Replication) -> None:
    execute(
        orders.dsn,
        """
        CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'full' USING ERRCODE = '53100';
        END $$
        """,
        "CREATE TRIGGER full_ BEFORE INSERT ON target FOR EACH STATEMENT EXECUTE FUNCTION is_full()",
    )
    asked: list[float] = []

    class PausesLater(Turn):
        def must_pause(self, seconds_used: float, seconds_idle: float) -> bool:
            asked.append(seconds_idle)
            return len(asked) > 1

    document = orders.changed(retry={"max_attempts": 3, "initial_delay_ms": 10})
    with pytest.raises(CkptError, match="full"):
        replicate(replace(document.setup(), turn=PausesLater()), SessionEngine(orders.spark))
    assert len(asked) == 1


def test_a_pipeline_can_be_drained_while_its_run_waits_for_its_turn(orders: Replication) -> None:
    turn = OthersFirst()
    ended: list[RunSummary] = []
    setup = replace(orders.setup(), turn=turn)
    running = threading.Thread(target=lambda: ended.append(replicate(setup, SessionEngine(orders.spark))))
    running.start()
    assert turn.asked.wait(60)

    orders.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann", reason="test")
    running.join(60)

    assert [summary.records for summary in ended] == [Counts()]
    assert not ended[0].spark_started
