"""Tests of adding work: declaration, first start, planning, and the begin of attempts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_ckpt.connectors.source_protocol import Plan, PlannedBatch, SourceFile, SourcePartition
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy, RetryPolicy
from tests.integration.ledger.ledger_driver import NOW, Acts, delivered, failed

FILES = [SourceFile(0, "/in/a.json", 0, 100, "e0"), SourceFile(1, "/in/b.json", 100, 50, "e1")]


def test_a_declaration_is_stored_and_a_change_is_told_by_an_event(acts: Acts) -> None:
    acts.ledger.declare(acts.lease, {"name": "orders", "sink": "a"})
    acts.ledger.declare(acts.lease, {"name": "orders", "sink": "a"})
    acts.ledger.declare(acts.lease, {"name": "orders", "sink": "b"})
    assert acts.ledger.status("orders")["declaration"] == {"name": "orders", "sink": "b"}
    assert [event["detail"] for event in acts.events("declared")] == [
        {"before": {}, "after": {"name": "orders", "sink": "a"}},
        {"before": {"sink": "a"}, "after": {"sink": "b"}},
    ]


def test_a_partition_starts_at_its_declared_base(acts: Acts) -> None:
    acts.start("u", base=500)
    partition = acts.partition("u")
    assert (partition.base, partition.committed, partition.planned_end, partition.next_seq) == (500, 500, 500, 0)


def test_a_started_partition_stays_where_it_is(acts: Acts) -> None:
    acts.settle(*map(delivered, acts.send(10)))
    acts.start("t", base=0)
    assert acts.partition().committed == 10


def test_a_recreated_source_is_refused_and_explained(acts: Acts) -> None:
    acts.settle(*map(delivered, acts.send(10)))
    with pytest.raises(SourceError, match="recreated") as caught:
        acts.ledger.start_partitions(acts.lease, {SourcePartition("t", "another thing"): 0})
    assert all(word in str(caught.value) for word in ("orders", "position 10", "thing of t", "another thing"))
    assert acts.partition().committed == 10


def test_planned_batches_are_numbered_and_block_the_checkpoint(acts: Acts) -> None:
    batches = acts.plan(10, 25)
    assert [batch.key for batch in batches] == [BatchKey(1, "t", 0), BatchKey(1, "t", 1)]
    assert [batch.range for batch in batches] == [Range(0, 10), Range(10, 25)]
    assert (acts.partition().planned_end, acts.partition().committed) == (25, 0)
    assert list(acts.partition().batches.values()) == batches


def test_a_plan_with_a_hole_is_refused_whole(acts: Acts) -> None:
    plan = Plan([PlannedBatch("t", Range(0, 10)), PlannedBatch("t", Range(11, 20))], files=FILES)
    with pytest.raises(LedgerStateError, match="does not continue"):
        acts.ledger.plan(acts.lease, plan)
    assert (acts.states(), acts.ledger.files("orders")) == ({}, [])


def test_a_plan_for_an_unknown_partition_is_refused(acts: Acts) -> None:
    with pytest.raises(LedgerStateError, match="never started"):
        acts.ledger.plan(acts.lease, Plan([PlannedBatch("x", Range(0, 10))]))


def test_files_bounds_and_states_are_stored_with_the_plan(acts: Acts) -> None:
    plan = Plan([PlannedBatch("t", Range(0, 150))], FILES, {"t": 150}, {"t": {"seen": [1, 2]}})
    acts.ledger.plan(acts.lease, plan)
    record = acts.ledger.partitions("orders")["t"]
    assert acts.ledger.files("orders") == FILES
    assert (record.bound, record.state, record.identity) == (150, {"seen": [1, 2]}, "thing of t")


def test_files_go_on_where_the_recorded_ones_end(acts: Acts) -> None:
    acts.ledger.plan(acts.lease, Plan(files=FILES))
    acts.ledger.plan(acts.lease, Plan(files=[SourceFile(2, "/in/c.json", 150, 1, "e2")]))
    with pytest.raises(LedgerStateError, match="run again"):
        acts.ledger.plan(acts.lease, Plan(files=[SourceFile(2, "/in/d.json", 151, 1, "e3")]))
    assert [file.ordinal for file in acts.ledger.files("orders")] == [0, 1, 2]


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
def test_files_are_found_by_the_ranges_that_they_overlap(acts: Acts, ranges: list[Range], found: list[int]) -> None:
    more = [SourceFile(2, "/in/empty.json", 150, 0, "e2"), SourceFile(3, "/in/c.json", 150, 1, "e3")]
    acts.ledger.plan(acts.lease, Plan(files=FILES + more))
    assert [file.ordinal for file in acts.ledger.files("orders", ranges)] == found


def test_begin_opens_an_attempt_under_the_leases_epoch(acts: Acts) -> None:
    (started,) = acts.begin(acts.plan(10))
    assert (started.state, started.attempts, started.epoch) == (BatchState.IN_FLIGHT, 1, 1)
    assert acts.batch(started.key) == started


def test_begin_is_all_or_nothing(acts: Acts) -> None:
    first, second = acts.plan(10, 20)
    acts.begin([second])
    with pytest.raises(LedgerStateError, match="in_flight, not planned"):
        acts.begin([first, second])
    assert acts.states() == {0: BatchState.PLANNED, 1: BatchState.IN_FLIGHT}


def test_a_batch_that_waits_is_not_begun_before_its_time(acts: Acts) -> None:
    (batch,) = acts.send(10)
    acts.settle(failed(batch), policy=DeliveryPolicy(RetryPolicy(initial_delay_ms=1000)))
    with pytest.raises(LedgerStateError, match="not to be started before"):
        acts.begin([batch], now=NOW + timedelta(milliseconds=999))
    assert acts.begin([batch], now=NOW + timedelta(seconds=1))[0].attempts == 2


def test_at_most_once_resolves_a_batch_before_it_is_sent(acts: Acts) -> None:
    started = acts.begin(acts.plan(10, 20), at_most_once=True)
    assert [batch.state for batch in started] == [BatchState.SENT, BatchState.SENT]
    assert acts.partition().committed == 20
    with pytest.raises(LedgerStateError):
        acts.begin(started, at_most_once=True)


def test_what_was_sent_at_most_once_is_counted_when_its_receipt_comes(acts: Acts) -> None:
    first, second = acts.begin(acts.plan(10, 20), at_most_once=True)
    settlement = acts.settle(delivered(first))
    assert [receipt.key for receipt in settlement.acked] == [first.key]
    assert acts.receipts() == [(0, 10, 1, 10)]
    assert acts.ledger.partitions("orders")["t"].known.position == second.range.start
    assert acts.settle(delivered(first)).acked == []


def test_what_was_sent_at_most_once_and_never_heard_of_is_given_up_by_the_next_run(acts: Acts) -> None:
    acts.begin(acts.plan(10, 20), at_most_once=True)
    acts.again().reconcile()
    (found,) = acts.ledger.receipts("orders")
    assert (found.range, found.batches, found.sent, found.counts.read) == (Range(0, 20), 2, 2, 0)
    assert [event["seq"] for event in acts.events("unconfirmed")] == [0, 1]
