"""Tests of the declaration, the first start, planning, and the begin of attempts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, SourceFile, SourcePartition
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy, RetryPolicy
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, failed

FILES = [SourceFile(0, "/in/a.json", 0, 100, "e0"), SourceFile(1, "/in/b.json", 100, 50, "e1")]


def test_a_declaration_is_stored_and_a_change_is_told_by_an_event(driver: LedgerDriver) -> None:
    driver.ledger.declare(driver.lease, {"name": "orders", "sink": "a"})
    driver.ledger.declare(driver.lease, {"name": "orders", "sink": "a"})
    driver.ledger.declare(driver.lease, {"name": "orders", "sink": "b"})
    assert driver.ledger.status("orders")["declaration"] == {"name": "orders", "sink": "b"}
    assert [event["detail"] for event in driver.events("declared")] == [
        {"before": {}, "after": {"name": "orders", "sink": "a"}},
        {"before": {"sink": "a"}, "after": {"sink": "b"}},
    ]


def test_a_partition_starts_at_its_declared_base(driver: LedgerDriver) -> None:
    driver.start("u", base=500)
    partition = driver.partition("u")
    assert (partition.base, partition.committed, partition.planned_end, partition.next_seq) == (500, 500, 500, 0)


def test_a_started_partition_stays_where_it_is(driver: LedgerDriver) -> None:
    driver.settle(*map(delivered, driver.send(10)))
    driver.start("t", base=0)
    assert driver.partition().committed == 10


def test_a_recreated_source_is_refused_and_explained(driver: LedgerDriver) -> None:
    driver.settle(*map(delivered, driver.send(10)))
    with pytest.raises(SourceError, match="recreated") as caught:
        driver.ledger.start_partitions(driver.lease, {SourcePartition("t", "another thing"): 0})
    assert all(word in str(caught.value) for word in ("orders", "position 10", "thing of t", "another thing"))
    assert driver.partition().committed == 10


def test_planned_batches_are_numbered_and_block_the_checkpoint(driver: LedgerDriver) -> None:
    batches = driver.plan(10, 25)
    assert [batch.key for batch in batches] == [BatchKey(1, "t", 0), BatchKey(1, "t", 1)]
    assert [batch.range for batch in batches] == [Range(0, 10), Range(10, 25)]
    assert (driver.partition().planned_end, driver.partition().committed) == (25, 0)
    assert list(driver.partition().batches.values()) == batches


def test_a_plan_with_a_hole_is_refused_whole(driver: LedgerDriver) -> None:
    plan = Plan([PlannedBatch("t", Range(0, 10)), PlannedBatch("t", Range(11, 20))], files=FILES)
    with pytest.raises(LedgerStateError, match="does not continue"):
        driver.ledger.plan(driver.lease, plan)
    assert (driver.states(), driver.ledger.files("orders")) == ({}, [])


def test_a_plan_for_an_unknown_partition_is_refused(driver: LedgerDriver) -> None:
    with pytest.raises(LedgerStateError, match="never started"):
        driver.ledger.plan(driver.lease, Plan([PlannedBatch("x", Range(0, 10))]))


def test_files_bounds_and_states_are_stored_with_the_plan(driver: LedgerDriver) -> None:
    plan = Plan([PlannedBatch("t", Range(0, 150))], FILES, {"t": 150}, {"t": {"seen": [1, 2]}})
    driver.ledger.plan(driver.lease, plan)
    record = driver.ledger.partitions("orders")["t"]
    assert driver.ledger.files("orders") == FILES
    assert (record.bound, record.state, record.identity) == (150, {"seen": [1, 2]}, "thing of t")


def test_files_go_on_where_the_recorded_ones_end(driver: LedgerDriver) -> None:
    driver.ledger.plan(driver.lease, Plan(files=FILES))
    driver.ledger.plan(driver.lease, Plan(files=[SourceFile(2, "/in/c.json", 150, 1, "e2")]))
    with pytest.raises(LedgerStateError, match="run again"):
        driver.ledger.plan(driver.lease, Plan(files=[SourceFile(2, "/in/d.json", 151, 1, "e3")]))
    assert [file.ordinal for file in driver.ledger.files("orders")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("ranges", "found"),
    [
        ([Range(0, 1)], [0]),
        ([Range(99, 101)], [0, 1]),
        ([Range(149, 150)], [1]),
        ([Range(0, 1), Range(150, 151)], [0, 3]),
        ([Range(200, 300)], []),
        ([], []),
    ],
)
def test_files_are_found_by_the_ranges_that_they_overlap(
    driver: LedgerDriver, ranges: list[Range], found: list[int]
) -> None:
    more = [SourceFile(2, "/in/empty.json", 150, 0, "e2"), SourceFile(3, "/in/c.json", 150, 1, "e3")]
    driver.ledger.plan(driver.lease, Plan(files=FILES + more))
    assert [file.ordinal for file in driver.ledger.files("orders", ranges)] == found


def test_begin_opens_an_attempt_under_the_leases_epoch(driver: LedgerDriver) -> None:
    (started,) = driver.begin(driver.plan(10))
    assert (started.state, started.attempts, started.epoch) == (BatchState.IN_FLIGHT, 1, 1)
    assert driver.batch(started.key) == started


def test_begin_is_all_or_nothing(driver: LedgerDriver) -> None:
    first, second = driver.plan(10, 20)
    driver.begin([second])
    with pytest.raises(LedgerStateError, match="in_flight, not planned"):
        driver.begin([first, second])
    assert driver.states() == {0: BatchState.PLANNED, 1: BatchState.IN_FLIGHT}


def test_a_batch_that_waits_is_not_begun_before_its_time(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(failed(batch), policy=DeliveryPolicy(RetryPolicy(initial_delay_ms=1000)))
    with pytest.raises(LedgerStateError, match="not to be started before"):
        driver.begin([batch], now=NOW + timedelta(milliseconds=999))
    assert driver.begin([batch], now=NOW + timedelta(seconds=1))[0].attempts == 2


def test_at_most_once_resolves_a_batch_before_it_is_sent(driver: LedgerDriver) -> None:
    started = driver.begin(driver.plan(10, 20), at_most_once=True)
    assert [batch.state for batch in started] == [BatchState.SENT, BatchState.SENT]
    assert driver.partition().committed == 20
    with pytest.raises(LedgerStateError):
        driver.begin(started, at_most_once=True)


def test_what_was_sent_at_most_once_is_counted_when_its_receipt_comes(driver: LedgerDriver) -> None:
    first, second = driver.begin(driver.plan(10, 20), at_most_once=True)
    settlement = driver.settle(delivered(first))
    assert [receipt.key for receipt in settlement.acked] == [first.key]
    assert driver.receipts() == [(0, 10, 1, 10)]
    assert driver.ledger.partitions("orders")["t"].known.position == second.range.start
    assert driver.settle(delivered(first)).acked == []


def test_what_was_sent_at_most_once_and_never_heard_of_is_given_up_by_the_next_run(driver: LedgerDriver) -> None:
    driver.begin(driver.plan(10, 20), at_most_once=True)
    driver.again().reconcile()
    (found,) = driver.ledger.receipts("orders")
    assert (found.range, found.batches, found.sent, found.counts.read) == (Range(0, 20), 2, 2, 0)
    assert [event["seq"] for event in driver.events("unconfirmed")] == [0, 1]
