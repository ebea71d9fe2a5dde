"""The low watermark follows the checkpoint at the distance of the window, and receipts are merged below it."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import bulk_sql, receipts, tables
from airflow_provider_ckpt.ledger.types import Totals
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, failed, receipt_of

WINDOW = timedelta(hours=1)


@pytest.fixture
def windowed(driver: LedgerDriver) -> LedgerDriver:
    """The same, with a recovery window."""
    driver.window = WINDOW
    return driver


def low(driver: LedgerDriver, name: str = "t") -> int:
    """The stored low watermark."""
    return driver.record(name).low_watermark


def test_without_a_window_it_is_the_checkpoint_and_receipts_are_one_range(driver: LedgerDriver) -> None:
    driver.deliver(10, 20)
    driver.deliver(30)
    assert (low(driver), driver.receipts()) == (30, [(0, 30, 3, 30)])


def test_within_the_window_receipts_stay_one_a_batch(windowed: LedgerDriver) -> None:
    windowed.deliver(10, 20)
    windowed.wait(minutes=59).deliver(30)
    assert (low(windowed), windowed.ranges()) == (0, [(0, 10), (10, 20), (20, 30)])


def test_it_goes_to_where_the_checkpoint_stood_a_window_ago_and_merges_below(windowed: LedgerDriver) -> None:
    windowed.deliver(10, 20)
    windowed.wait(minutes=30).deliver(30)
    windowed.wait(minutes=40).deliver(40)
    assert (low(windowed), windowed.ranges()) == (20, [(0, 20), (20, 30), (30, 40)])
    windowed.wait(minutes=40).deliver(50)
    assert (low(windowed), windowed.ranges()) == (30, [(0, 30), (30, 40), (40, 50)])


def test_a_run_that_finds_nothing_moves_it_too(windowed: LedgerDriver) -> None:
    windowed.deliver(10, 20)
    windowed.wait(days=3).again().reconcile()
    assert (low(windowed), windowed.receipts()) == (20, [(0, 20, 2, 20)])


def test_going_without_a_window_moves_it_to_the_checkpoint_and_it_never_comes_back(windowed: LedgerDriver) -> None:
    windowed.deliver(10, 20, 30)
    windowed.window = None
    windowed.deliver(40)
    assert (low(windowed), windowed.ranges()) == (40, [(0, 40)])
    windowed.window = WINDOW
    windowed.wait(minutes=5).deliver(50)
    assert (low(windowed), windowed.ranges()) == (40, [(0, 40), (40, 50)])


def test_commands_that_do_not_name_the_window_leave_it_where_it_is(windowed: LedgerDriver) -> None:
    windowed.deliver(10)
    (batch,) = windowed.plan(20)
    windowed.action(ActionKind.SKIP, batch)
    assert (low(windowed), windowed.partition().committed, windowed.ranges()) == (0, 20, [(0, 10), (10, 20)])


def test_what_stays_undone_for_longer_than_the_window_is_told_once_and_goes_on_blocking(windowed: LedgerDriver) -> None:
    first, second = windowed.send(10, 20)
    windowed.settle(failed(first), delivered(second))
    for _ in range(3):
        windowed.wait(hours=2).again().reconcile()
    assert (low(windowed), windowed.partition().committed) == (20, 0)
    (event,) = windowed.events("expired_unreceipted")
    assert (event["partition"], event["seq"], event["detail"]) == ("t", 0, {"range": [0, 10]})


def test_what_is_delivered_below_it_in_the_end_joins_the_merged_range(windowed: LedgerDriver) -> None:
    windowed.deliver(10)
    first, second = windowed.send(20, 30)
    windowed.settle(failed(first), delivered(second))
    windowed.wait(hours=2).again().reconcile()
    assert low(windowed) == 30
    windowed.settle(*map(delivered, windowed.begin([first])))
    assert windowed.receipts() == [(0, 30, 3, 30)]


def test_a_rewind_starts_it_anew_and_keeps_the_sums_of_what_it_ends(windowed: LedgerDriver) -> None:
    windowed.deliver(10, 20)
    windowed.wait(hours=2).deliver(30, 40)
    windowed.action(ActionKind.REWIND, positions={"t": 5})
    windowed.deliver(10)
    record = windowed.record()
    assert (record.low_watermark, record.totals.counts.read, record.totals.batches) == (5, 5, 1)
    assert windowed.ranges(1) == [(0, 20), (20, 30), (30, 40)]
    assert windowed.ranges(2) == [(5, 10)]
    with windowed.ledger._engine.connect() as connection:
        c = tables.generation.c
        rows = connection.execute(sa.select(c.generation, c.read, c.batches, c.single_from).order_by(c.generation))
        assert [tuple(row) for row in rows] == [(1, 40, 4, 20), (2, None, None, None)]


def test_two_intents_in_one_command_count_what_they_pass_once(driver: LedgerDriver) -> None:
    batches = driver.plan(10, 20, 30)
    for batch in batches:
        driver.ledger.action("orders", Action(ActionKind.SKIP, (batch.key,)), actor="ann", reason="not wanted")
    driver.ledger.apply_stored_actions(driver.lease, now=NOW)
    assert driver.record().totals == Totals(batches=3, skipped=3)
    driver.deliver(40)
    assert driver.receipts() == [(0, 40, 4, 10)]


def test_the_totals_are_the_sums_of_the_receipts_whatever_happens(driver: LedgerDriver) -> None:
    chance = random.Random(7)
    for _ in range(60):
        driver.window = chance.choice([None, WINDOW, WINDOW, timedelta(minutes=20)])
        driver.wait(minutes=chance.choice([0, 1, 30]))
        at = driver.partition().planned_end
        step = chance.choice(["deliver", "mixed", "rewind", "skip", "at_most_once", "again"])
        if step == "deliver":
            driver.deliver(*range(at + 5, at + 5 * chance.randint(2, 6), 5))
        elif step == "mixed":
            outcomes = [
                failed(b) if chance.random() < 0.3 else delivered(b, dead=1) for b in driver.send(at + 3, at + 9)
            ]
            driver.settle(*outcomes)
        elif step == "rewind":
            part = driver.partition()
            driver.action(ActionKind.REWIND, positions={"t": chance.randint(part.base, part.committed)})
        elif step == "skip":
            driver.action(ActionKind.SKIP, *driver.plan(at + 2))
        elif step == "at_most_once":
            driver.begin(driver.plan(at + 4, at + 8), at_most_once=True)
        else:
            batches = [b for b in driver.partition().batches.values() if b.started and b.receipt is None]
            driver.again().reconcile(*(receipt_of(b, chance.choice(list(Verdict)), epoch=1) for b in batches))
            driver.settle(*map(delivered, driver.begin(b for b in driver.partition().blocking.values())))
        check(driver)


def check(driver: LedgerDriver) -> None:
    """Totals are sums, receipts cover what was passed, and below the low watermark none touch."""
    record = driver.record()
    part = record.partition
    mine = [r for r in driver.ledger.receipts("orders") if r.generation == part.generation]
    assert Totals().plus(mine) == record.totals
    ranges = [r.range for r in mine]
    unconfirmed = [] if record.unconfirmed is None else [Range(record.unconfirmed, part.committed)]
    if part.committed > part.base:
        assert merge([*ranges, *unconfirmed])[0] == Range(part.base, part.committed)
    below = [span for span in ranges if span.start < record.low_watermark]
    assert merge(below) == below
    assert part.base <= record.low_watermark
    assert driver.ledger.audit("orders")["violations"] == []


@pytest.mark.parametrize("where", [0, 35, 50, 95])
def test_a_receipt_is_merged_with_the_rows_that_it_touches_and_no_others(ledger: Ledger, where: int) -> None:
    rows = [Range(start, start + 5) for start in range(0, 100, 10)] + [Range(100, 105), Range(105, 110)]
    fresh = Range(where, where + 10)
    with ledger._engine.begin() as connection:
        add(connection, *rows)
        receipts.merge_into_rows(connection, "orders", [(RangeReceipt(1, "t", fresh, Totals().counts, 1), 105)])
        found = [r.range for r in sorted(stored(connection), key=lambda r: r.range)]
    assert found == [*merge([*rows[:-1], fresh]), Range(105, 110)]


def test_a_stretch_is_merged_with_the_row_before_it_and_not_with_the_one_after(ledger: Ledger) -> None:
    rows = [Range(0, 10), Range(10, 20), Range(20, 30), Range(31, 35), Range(35, 40), Range(40, 50)]
    with ledger._engine.begin() as connection:
        add(connection, *rows)
        stretch = receipts.RowRange(1, "t", 10, 40)
        assert receipts.compact(connection, "orders", [stretch], dry_run=True) == 3
        assert receipts.compact(connection, "orders", [stretch]) == 3
        assert [(r.range, r.batches) for r in stored(connection)] == [
            (Range(0, 30), 3),
            (Range(31, 40), 2),
            (Range(40, 50), 1),
        ]


def add(connection: sa.Connection, *ranges: Range) -> None:
    """Store bare receipts."""
    rows = [
        {"pipeline": "orders", "generation": 1, "partition": "t", "range_start": r.start, "range_end": r.end}
        | dict.fromkeys(tables.TOTALS, 0)
        | {"batches": 1, "at": NOW}
        for r in ranges
    ]
    bulk_sql.insert(connection, tables.receipt, rows)


def stored(connection: sa.Connection) -> list[RangeReceipt]:
    """All receipts."""
    query = sa.select(tables.receipt).order_by(tables.receipt.c.range_start)
    return [receipts.from_row(row) for row in connection.execute(query).mappings()]
