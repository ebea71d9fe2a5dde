"""The keys of the delivery policy in whole runs: settlement, distribution over lanes, and the effect of errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import CkptError, LedgerUnavailableError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.engine_protocol import Check
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from airflow_provider_ckpt.replication.turn import Turn
from tests.services.replication import Replication
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GATE = 4711
"""An advisory lock, at which the target lets a lane wait."""


def guard_target(dsn: str, condition: str, action: str) -> None:
    """Have the target do something about a row before it takes it."""
    execute(
        dsn,
        f"""
        CREATE OR REPLACE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF {condition} THEN {action}; END IF;
            RETURN NEW;
        END $$
        """,
        "CREATE OR REPLACE TRIGGER watch BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION watch()",
    )


def refusing(dsn: str, condition: str, sqlstate: str) -> None:
    """Have the target refuse a row."""
    guard_target(dsn, condition, f"RAISE EXCEPTION 'it is refused' USING ERRCODE = '{sqlstate}'")


@contextmanager
def gate(dsn: str) -> Iterator[None]:
    """Hold the gate shut, without a transaction: planning would wait for one."""
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("SELECT pg_advisory_lock(%s)", [GATE])
        yield


def committed(orders: Replication) -> int:
    """Return the checkpoint."""
    return next((r.partition.committed for r in orders.ledger.partitions("orders").values()), 0)


@contextmanager
def running(orders: Replication) -> Iterator[Future[RunSummary]]:
    """A run in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(orders.run)


# settling while a wave runs


@pytest.mark.parametrize(
    ("strategy", "reached"),
    [
        ({"checkpoint_after_ms": 50, "min_checkpoint_count": 3}, 701),
        ({"manual_commit": False, "auto_commit_interval_ms": 100, "min_checkpoint_count": 1000}, 901),
    ],
    ids=["cadence", "timer"],
)
def test_the_checkpoint_moves_while_a_wave_runs(orders: Replication, strategy: dict[str, Any], reached: int) -> None:
    execute(orders.dsn, "ALTER TABLE target ADD CHECK (id <> 5)")
    guard_target(orders.dsn, "NEW.id = 950", f"PERFORM pg_advisory_lock_shared({GATE})")
    one_lane = orders.changed(commit_strategy=strategy, consumer={"lanes": 1})

    with running(one_lane) as run:
        with gate(orders.dsn):
            deadline = time.monotonic() + 120
            while committed(orders) < reached and not run.done() and time.monotonic() < deadline:
                threading.Event().wait(0.05)
            assert reached <= committed(orders) <= 901, "nine batches have their receipts, and the wave goes on"
            assert not run.done()
        summary = run.result()

    assert summary.records == Counts(1000, 999, 0, 1)
    assert (summary.batches, committed(orders)) == (10, 1001)
    [entry] = orders.ledger.dead_letter_index("orders").entries
    assert entry.dead_letters.error_type == "Sink"
    assert orders.ledger.audit("orders")["ok"]


# spreading


class Watching(SessionEngine):
    """An engine that remembers its waves."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.waves: list[Wave] = []

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        self.waves.append(wave)
        return super().run(wave, check)


@pytest.mark.parametrize(
    ("policy", "shapes"),
    [
        ({"consumer": {"strategy": "round_robin", "lanes": 2}}, [[5, 5]]),
        ({"consumer": {"strategy": "pinned", "lanes": 2}}, [[10]]),
        ({"consumer": {"strategy": "single", "lanes": 2}}, [[10]]),
        ({"commit_strategy": {"commit_mode": "sync"}, "consumer": {"lanes": 5}}, [[1] * 5] * 2),
        ({"delivery": "at_most_once", "consumer": {"lanes": 5}}, [[1] * 5] * 2),
        ({"commit_strategy": {"commit_interval": 500}, "consumer": {"lanes": 5}}, [[1, 1]]),
    ],
    ids=["round_robin", "pinned", "single", "sync", "at_most_once", "commit_interval"],
)
def test_how_batches_are_spread_over_lanes_and_waves(
    orders: Replication, policy: dict[str, Any], shapes: list[list[int]]
) -> None:
    engine = Watching(orders.spark)

    summary = replicate(orders.changed(**policy).setup(), engine)

    assert summary.records == Counts(1000, 1000, 0, 0)
    assert [[len(lane) for lane in wave.lanes] for wave in engine.waves] == shapes


def test_a_wave_has_fewer_lanes_while_other_runs_wait_for_the_same_spark(orders: Replication) -> None:
    strategy = {"commit_mode": "sync"}
    setup = orders.changed(commit_strategy=strategy, consumer={"lanes": 5}).setup()
    engine, most = Watching(orders.spark), iter([2, 9])

    class FewLanes(Turn):
        @property
        def most_lanes(self) -> int | None:
            return next(most, None)

    replicate(replace(setup, turn=FewLanes()), engine)

    assert [[len(lane) for lane in wave.lanes] for wave in engine.waves] == [[1] * 2, [1] * 5, [1] * 3]


# back-pressure and exhaustion


def test_planning_waits_while_too_many_records_are_in_flight(orders: Replication) -> None:
    few = orders.changed(consumer={"max_in_flight": 300})

    with acquire(few.setup()) as run:
        assert [run.plan(), run.plan()] == [3, 3]
        run.finish()

    assert few.run().records == Counts(1000, 1000, 0, 0)


def test_what_is_retried_and_held_counts_as_in_flight_and_what_failed_stays(orders: Replication) -> None:
    refusing(orders.dsn, "NEW.id IN (150, 250)", "40001")
    used_up = {"max_attempts": 2, "rounds": 1, "initial_delay_ms": 1}
    holding = orders.changed(consumer={"max_in_flight": 200, "lanes": 1}, retry={**used_up, "on_exhausted": "hold"})

    summary = holding.run()

    assert summary.route == ["hold"]
    assert summary.batches_by_state == {"held": 2}
    [record] = orders.ledger.partitions("orders").values()
    assert record.partition.planned_end == 301, "two held batches fill what may be in flight"

    with pytest.raises(CkptError, match="it is refused"):
        orders.changed(name="failing", retry={**used_up, "on_exhausted": "fail"}).run()
    [record] = orders.ledger.partitions("failing").values()
    assert {batch.state for batch in record.partition.blocking.values()} == {BatchState.PLANNED}
    assert max(batch.attempts for batch in record.partition.blocking.values()) == 2, "and not one more"


@pytest.mark.parametrize("drained", [True, False], ids=["a drain", "the time budget"])
def test_a_run_that_waits_for_a_retry_ends_by(orders: Replication, drained: bool) -> None:
    refusing(orders.dsn, "NEW.id = 150", "40001")
    long = {"initial_delay_ms": 60_000, "max_delay_ms": 60_000}
    patient = orders.changed(retry=long, run={"time_budget": "10m" if drained else "8s"})
    began = time.monotonic()

    with running(patient) as run:
        while committed(orders) != 101 and not run.done():
            threading.Event().wait(0.05)
        if drained:
            orders.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann", reason="maintenance")
        summary = run.result()

    assert time.monotonic() - began < 40
    assert (summary.batches, summary.batches_by_state) == (9, {"planned": 1})


def test_a_ledger_that_is_away_between_two_waves_is_asked_again(
    orders: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [LedgerUnavailableError("the ledger did not answer.", recoverable=True) for _ in range(2)]
    open_work = orders.ledger.open_work

    def answer(pipeline: str) -> Any:
        if away and orders.ledger.partitions(pipeline)["public.orders"].partition.blocking:
            raise away.pop()
        return open_work(pipeline)

    monkeypatch.setattr(orders.ledger, "open_work", answer)

    assert orders.run().records == Counts(1000, 1000, 0, 0)
    assert not away


# actions by error type


def test_a_records_error_that_the_pipeline_skips_costs_the_record_and_leaves_no_letter(orders: Replication) -> None:
    execute(orders.dsn, "ALTER TABLE target ADD CHECK (id % 100 <> 5)")
    select = {name: name for name in ("id", "customer", "amount", "created_at", "status", "note")}
    skipping = orders.changed(
        transform={"select": {**select, "customer": "cast(customer / (id % 100 - 7) as int)"}},
        error_policy={"Sink": "skip_and_log", "TransformEvaluation": "skip_and_log"},
    )

    summary = skipping.run()

    assert summary.records == Counts(1000, 980, 20, 0)
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 980
    assert scalar(orders.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter") == 0
    assert orders.ledger.audit("orders")["ok"]


@pytest.mark.parametrize("where", ["sink", "transform"])
def test_a_records_error_that_the_pipeline_halts_at_halts_before_anything_of_its_batch(
    orders: Replication, where: str
) -> None:
    if where == "sink":
        execute(orders.dsn, "ALTER TABLE target ADD CHECK (id <> 505)")
        halting = orders.changed(error_policy={"Sink": "halt"}, consumer={"strategy": "single"})
    else:
        halting = orders.changed(
            error_policy={"FilterEvaluation": "halt"},
            transform={"where": "1 / (id - 505) < 2"},
            consumer={"strategy": "single"},
        )

    with pytest.raises(CkptError, match=r"\[(Sink|FilterEvaluation)\].*position 505: "):
        halting.run()

    assert (committed(orders), scalar(orders.dsn, "SELECT count(*) FROM target")) == (501, 500)
    assert scalar(orders.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter") == 0


def test_a_record_that_is_retried_has_its_batch_s_attempts_though_others_kept_it_waiting(orders: Replication) -> None:
    execute(orders.dsn, "ALTER TABLE target ADD CHECK (id NOT IN (50, 150))")
    retrying = orders.changed(
        error_policy={"Sink": "retry"},
        retry={"max_attempts": 3, "rounds": 1, "initial_delay_ms": 1},
        consumer={"strategy": "pinned"},
    )

    assert retrying.run().records == Counts(1000, 998, 0, 2)

    failed = [event["seq"] for event in orders.ledger.events("orders", 1000) if event["kind"] == "failed"]
    assert failed == [0, 0, 1, 1]
    tried = "SELECT headers ->> 'x-ckpt-retry-attempts' FROM ckpt_sink_dead_letter ORDER BY position"
    assert execute(orders.dsn, tried) == [("2",), ("2",)]


def test_an_error_that_no_rule_names_halts_with_its_type_in_the_message(orders: Replication) -> None:
    refusing(orders.dsn, "NEW.id = 150", "0A000")

    with pytest.raises(CkptError, match=r"^\[Sink\] pipeline orders, batch .*#1: .*it is refused"):
        orders.run()

    assert scalar(orders.dsn, "SELECT count(*) FROM target WHERE id BETWEEN 101 AND 200") == 0


# at most once


def test_at_most_once_what_failed_is_lost_and_counted_and_not_sent_again(orders: Replication) -> None:
    refusing(orders.dsn, "NEW.id = 150", "40001")
    once = orders.changed(delivery="at_most_once")

    first = once.run()
    execute(orders.dsn, "DROP TRIGGER watch ON target")
    second = once.run()

    assert first.records == Counts(900, 900, 0, 0)
    assert (first.batches_by_state, committed(orders)) == ({"sent": 1}, 1001)
    assert second.records == Counts()
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 900
    audit = orders.ledger.audit("orders")
    assert audit["ok"]
    assert [part["sent_at_most_once"] for part in audit["accounted"].values()] == [1]


def test_at_most_once_an_outage_costs_what_was_being_sent_and_nothing_that_follows(orders: Replication) -> None:
    refusing(orders.dsn, "NEW.id = 150", "53100")
    once = orders.changed(delivery="at_most_once", consumer={"lanes": 1})

    with pytest.raises(CkptError, match="what was being sent counts as sent"):
        once.run()
    assert committed(orders) == 201
    execute(orders.dsn, "DROP TRIGGER watch ON target")

    assert once.run().records == Counts(800, 800, 0, 0)
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 900


# stack traces


def test_a_dead_letters_stack_trace_is_what_spark_or_the_target_says_of_its_record(orders: Replication) -> None:
    execute(orders.dsn, "ALTER TABLE target ADD CONSTRAINT never_5 CHECK (id <> 5)")
    select = {name: name for name in ("id", "customer", "amount", "created_at", "status", "note")}
    traced = orders.changed(
        transform={
            "where": "1 / (id - 8) < 2",
            "select": {**select, "customer": "CAST(if(id IN (7, 107), status, '1') AS int)"},
        },
        dead_letter_queue={"include_stack_trace": True},
        consumer={"strategy": "single"},
    )

    summary = traced.run()

    assert summary.records == Counts(1000, 996, 0, 4)
    found = execute(
        orders.dsn, "SELECT position, headers ->> 'x-ckpt-stack-trace' FROM ckpt_sink_dead_letter ORDER BY position"
    )
    traces = dict(found)
    assert traces[5].startswith('ERROR: 23514: new row for relation "target" violates check constraint "never_5"')
    assert "DETAIL: Failing row contains (5," in traces[5]
    assert traces[7].startswith("[CAST_INVALID_INPUT] The value 'returned' of the type \"STRING\" cannot be cast")
    assert traces[107].startswith("[CAST_INVALID_INPUT]")
    assert "CAST(if(id IN (7, 107), status, '1') AS int)" in traces[7], "the query's context"
    assert traces[8].startswith("[DIVIDE_BY_ZERO]")
