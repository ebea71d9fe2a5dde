"""Tests of resending to a sink that has lost receipts: all lost ranges are sent again, and no others."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.resend_lost import ResendPlan, find_lost


def lost(
    *partitions: Partition, by_key: bool = False, first: dict[str, int] | None = None, **held: list[Range]
) -> ResendPlan:
    """Return the plan for partitions in generation 1, given the ranges that the sink holds of each."""
    return find_lost(
        partitions, {(1, name): ranges for name, ranges in held.items()}, first={}, skipped={}, by_key=by_key
    )


def pending(seq: int, start: int, end: int) -> Batch:
    """A batch beyond the checkpoint that has a receipt."""
    key, span = BatchKey(1, "t", seq), Range(start, end)
    receipt = Receipt(key, span, Verdict.DELIVERED, 1, 1, Counts(), datetime(2026, 1, 1, tzinfo=UTC))
    return Batch(key, span, BatchState.DELIVERED, attempts=1, receipt=receipt)


def test_nothing_is_lost_where_every_position_has_a_receipt() -> None:
    assert lost(Partition("t", committed=20), t=[Range(0, 10), Range(10, 20)]) == ResendPlan()


def test_a_lost_tail_is_rewound_to_which_keeps_the_order() -> None:
    assert lost(Partition("t", committed=20), t=[Range(0, 10)]) == ResendPlan({"t": 10})


def test_a_hole_is_read_beside_the_stream_so_that_what_follows_is_not_doubled() -> None:
    found = lost(Partition("t", committed=30), t=[Range(0, 10), Range(20, 30)])
    assert found == ResendPlan(ranges=(("t", Range(10, 20)),))


def test_a_hole_of_a_sink_that_replaces_by_key_is_rewound_to() -> None:
    assert lost(Partition("t", committed=30), by_key=True, t=[Range(0, 10), Range(20, 30)]) == ResendPlan({"t": 10})


def test_a_receipt_beyond_the_checkpoint_keeps_a_tail_from_being_rewound() -> None:
    partition = Partition("t", committed=20, planned_end=40, next_seq=4, batches=[pending(3, 30, 40)])
    found = lost(partition, t=[Range(0, 10), Range(30, 40)])
    assert found == ResendPlan(ranges=(("t", Range(10, 20)),))


def test_a_lost_receipt_beyond_the_checkpoint_is_sent_again_by_a_rewind_to_the_checkpoint() -> None:
    partition = Partition("t", committed=20, planned_end=40, next_seq=4, batches=[pending(3, 30, 40)])
    assert lost(partition, t=[Range(0, 20)]) == ResendPlan({"t": 20})


def test_what_earlier_generations_delivered_before_the_base_counts() -> None:
    partition = Partition("t", generation=3, base=50, committed=90)
    held = {(1, "t"): [Range(0, 40)], (2, "t"): [Range(30, 60)], (3, "t"): [Range(50, 70)]}
    found = find_lost([partition], held, first={"t": 0}, skipped={}, by_key=False)
    assert found == ResendPlan({"t": 70})


def test_what_a_rewind_was_to_deliver_again_is_lost_though_an_earlier_generation_delivered_it() -> None:
    partition = Partition("t", generation=2, base=50, committed=90)
    found = find_lost([partition], {(1, "t"): [Range(0, 80)]}, first={"t": 0}, skipped={}, by_key=False)
    assert found == ResendPlan({"t": 50})


def test_what_was_sent_again_before_is_not_lost() -> None:
    side = Partition("recovery:2:t", generation=2, base=10, committed=20, limit=20)
    held = {(1, "t"): [Range(0, 10), Range(20, 30)], (2, "recovery:2:t"): [Range(10, 20)]}
    found = find_lost([Partition("t", committed=30), side], held, first={}, skipped={}, by_key=False)
    assert found == ResendPlan()


def test_what_a_person_skipped_is_not_sent() -> None:
    skipped = {(1, "t"): [Range(10, 20)]}
    found = find_lost(
        [Partition("t", committed=40)], {(1, "t"): [Range(0, 10)]}, first={}, skipped=skipped, by_key=False
    )
    assert found == ResendPlan({"t": 20})


def test_a_replayed_range_that_is_lost_is_read_again() -> None:
    side = Partition("replay:2:t", generation=2, base=0, committed=10, limit=10)
    found = find_lost(
        [Partition("t", committed=30), side], {(1, "t"): [Range(0, 30)]}, first={}, skipped={}, by_key=False
    )
    assert found == ResendPlan(ranges=(("t", Range(0, 10)),))


def test_the_replay_of_dead_letters_that_is_lost_is_told_by_its_own_positions() -> None:
    side = Partition("dlq:2:t", generation=2, base=0, committed=5, limit=5)
    held = {(1, "t"): [Range(0, 30)], (2, "dlq:2:t"): [Range(0, 2)]}
    found = find_lost([Partition("t", committed=30), side], held, first={}, skipped={}, by_key=False)
    assert found == ResendPlan(replayed=(("dlq:2:t", Range(2, 5)),))
