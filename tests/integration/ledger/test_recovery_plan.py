"""Tests of the list of missing ranges, and of the subscription that continues without a gap or a duplicate."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import ConfigError, LeaseBusyError, LedgerStateError, StaleEpochError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.recovery import MissingRange, MissingReason, ReceiptedRange, UnreadRecords
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.ledger.ledger_driver import TTL, LedgerDriver, delivered

LAG = timedelta(minutes=5)
WINDOW = timedelta(hours=1)
WRITERS = 4


def plan(driver: LedgerDriver, late: dict[int, int] | None = None) -> list[MissingRange]:
    """The recovery plan, with a source that shows more records in ranges that begin at some positions."""

    def shown(partition: str, receipted_ranges: Sequence[ReceiptedRange]) -> list[UnreadRecords | None]:
        assert partition == "t"
        found: list[UnreadRecords | None] = []
        for receipted in receipted_ranges:
            span = receipted.receipt.range
            count = span.end - span.start + (late or {}).get(span.start, 0)
            more = 0 if receipted.pending else count - receipted.records
            found.append(UnreadRecords(count, more) if more > 0 else None)
        return found

    return driver.ledger.recovery_plan("orders", settle_lag=LAG, now=driver.now, window=driver.window, compare=shown)


@pytest.fixture
def windowed(driver: LedgerDriver) -> LedgerDriver:
    """The same, with a recovery window and three batches delivered."""
    driver.window = WINDOW
    driver.ledger.begin(driver.lease, [b.key for b in driver.plan(10, 20, 30)], now=driver.now, run="run 1")
    batches = driver.partition().batches.values()
    driver.settle(*(late_receipt(driver, delivered(batch)) for batch in batches))
    return driver


def late_receipt(driver: LedgerDriver, outcome: Outcome) -> Outcome:
    """The outcome with a receipt that was claimed by the test's clock."""
    assert outcome.receipt is not None
    return replace(outcome, receipt=replace(outcome.receipt, at=driver.now))


def test_late_records_are_located_by_batch_once_they_have_settled(windowed: LedgerDriver) -> None:
    assert plan(windowed, {10: 2}) == []
    windowed.wait(minutes=6)
    assert plan(windowed, {10: 2}) == [MissingRange("t", Range(10, 20), MissingReason.LATE, 10, 12)]


def test_what_the_window_has_passed_is_not_looked_at_even_before_a_run_moves_the_watermark(
    windowed: LedgerDriver,
) -> None:
    windowed.wait(hours=2)
    assert windowed.record().low_watermark == 0
    assert plan(windowed, {10: 2}) == []


def test_what_an_import_left_uncovered_is_an_alarm_until_it_is_planned(windowed: LedgerDriver) -> None:
    (first,) = windowed.plan(50)
    receipt = Receipt(first.key, Range(40, 50), Verdict.DELIVERED, 1, 1, Counts(10, 10), windowed.now)
    windowed.again().reconcile(receipt)
    windowed.wait(minutes=6)
    assert plan(windowed) == [MissingRange("t", Range(30, 40), MissingReason.UNRECEIPTED)]
    windowed.plan(40, start=30)
    assert plan(windowed) == []


def test_a_replay_owns_its_stretch_and_then_stands_in_for_it(windowed: LedgerDriver) -> None:
    windowed.wait(minutes=10).action(ActionKind.REPLAY, ranges=[("t", Range(0, 20))])
    assert plan(windowed, {0: 1, 20: 1}) == [MissingRange("t", Range(20, 30), MissingReason.LATE, 10, 11)]
    (side,) = [name for name in windowed.ledger.partitions("orders") if name != "t"]
    windowed.settle(*(late_receipt(windowed, delivered(b)) for b in windowed.send(20, name=side)))
    windowed.wait(minutes=10)
    assert plan(windowed, {0: 0}) == []
    assert plan(windowed, {0: 1}) == [MissingRange("t", Range(0, 20), MissingReason.LATE, 20, 21)]


def test_nobody_asks_the_source_where_nothing_can_be_compared(driver: LedgerDriver) -> None:
    driver.deliver(10)

    def shown(_partition: str, _ranges: Sequence[ReceiptedRange]) -> list[UnreadRecords | None]:
        raise AssertionError("asked")

    assert driver.ledger.recovery_plan("orders", settle_lag=LAG, now=driver.now, compare=shown) == []


def test_an_unknown_pipeline_has_no_plan(ledger: Ledger) -> None:
    for read in (lambda: ledger.recovery_plan("orders", settle_lag=LAG), lambda: ledger.subscribe("orders")):
        with pytest.raises(ConfigError, match="none yet"):
            read()


def test_a_subscription_tells_what_is_missing_and_then_what_is_new(windowed: LedgerDriver) -> None:
    windowed.wait(minutes=6)
    reader = windowed.ledger.subscribe(
        "orders",
        settle_lag=LAG,
        now=windowed.now,
        compare=lambda _, receipted_ranges: [UnreadRecords(99, 89)] * len(receipted_ranges),
    )
    assert [item.range for item in reader.missing] == [Range(0, 10), Range(10, 20), Range(20, 30)]
    assert reader.poll() == []
    windowed.deliver(40, 50)
    events = list(reader)
    assert [event["kind"] for event in events] == ["planned", "begun", "checkpoint", "settled"]
    assert events[0]["detail"]["ranges"] == events[3]["detail"]["receipts"] == {"t": [[30, 50]]}
    assert list(reader) == []


def test_a_subscription_goes_on_where_another_ended(windowed: LedgerDriver) -> None:
    first = windowed.ledger.subscribe("orders")
    windowed.deliver(40)
    seen = first.poll(limit=2)
    second = windowed.ledger.subscribe("orders", first.after)
    assert (second.missing, [event["kind"] for event in seen]) == ((), ["planned", "begun"])
    assert [event["kind"] for event in second] == ["checkpoint", "settled"]


def test_a_subscription_that_missed_collected_events_says_so(windowed: LedgerDriver) -> None:
    before = windowed.ledger.subscribe("orders", 0)
    windowed.ledger.garbage_collect("orders", keep=timedelta(0), actor="ann", now=windowed.wait(days=900).now)
    with pytest.raises(LedgerStateError, match="Subscribe again"):
        before.poll()
    anew = windowed.ledger.subscribe("orders")
    windowed.deliver(40)
    assert anew.poll()[0]["kind"] == "planned"


def write(url: str, name: str, rounds: int) -> int:
    """Fight for the lease, deliver a batch whenever it is won; says how many batches that were."""
    done = 0
    with Ledger.open(url) as ledger:
        while done < rounds:
            try:
                driver = LedgerDriver(ledger, owner=name)
                at = driver.partition().planned_end
                driver.deliver(at + 1)
                driver.deliver(at + 2, at + 3)
                ledger.release(driver.lease)
            except (LeaseBusyError, StaleEpochError):
                time.sleep(0.002)
                continue
            done += 1
    return done


def hold(url: str, rounds: int) -> int:
    """A person who acts meanwhile, on a pipeline of its own and on this one."""
    with Ledger.open(url) as ledger:
        other = LedgerDriver(ledger, owner="bob", pipeline="other").start("t")
        for end in range(1, rounds + 1):
            other.deliver(end)
            ledger.action("orders", Action(ActionKind.RELEASE), actor="bob")
    return rounds


def test_writers_that_commit_at_once_leave_no_gap_and_no_double(ledger: Ledger, ledger_url: str) -> None:
    start = LedgerDriver(ledger).start("t")
    ledger.release(start.lease)
    rounds = 12
    seen: list[dict[str, Any]] = []
    with ProcessPoolExecutor(WRITERS + 1, mp_context=multiprocessing.get_context("spawn")) as pool:
        work = [pool.submit(write, ledger_url, f"writer {n}", rounds) for n in range(WRITERS)]
        work.append(pool.submit(hold, ledger_url, 3 * rounds))
        while ledger.subscribe("orders").after < 10:
            time.sleep(0.01)
        reader = ledger.subscribe("orders")
        started = reader.after
        while not all(task.done() for task in work):
            seen += reader.poll(limit=3)
        seen += reader
        assert [task.result() for task in work] == [rounds] * WRITERS + [3 * rounds]
    ids = [event["id"] for event in seen]
    everything = [event["id"] for event in ledger.events("orders", limit=100_000)]
    assert ids == [number for number in everything if number > started]
    assert ids == sorted(set(ids))
    ranges = [span for event in seen if event["kind"] == "settled" for span in event["detail"]["receipts"]["t"]]
    assert all(one[1] == other[0] for one, other in pairwise(ranges))
    assert ranges[-1][1] == 3 * rounds * WRITERS
    assert not [b for b in start.partition().batches.values() if b.state is not BatchState.DELIVERED]
    assert start.lease.ttl == TTL


def test_of_a_pipeline_whose_first_start_was_never_declared_nothing_is_said_to_be_complete(ledger: Ledger) -> None:
    ledger.acquire("orders", "first", timedelta(seconds=60))
    with pytest.raises(ConfigError, match="it has never run"):
        ledger.recovery_plan("orders", settle_lag=timedelta(0))
