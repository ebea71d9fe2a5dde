"""Recovery: the low watermark, ranges that expire below it, and ranges above it without a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.low_watermark import expiry_events, low_watermark
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.partition_history import PartitionSnapshot
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.recovery import (
    MissingRange,
    MissingReason,
    PartitionAccount,
    ReceiptedRange,
    UnreadRecords,
    comparable_ranges,
    find_missing,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(hours=1)


def batch(seq: int, start: int, end: int, state: BatchState = BatchState.PLANNED) -> Batch:
    """A batch of partition ``t``; a delivered one has read a record a position."""
    key, span = BatchKey(1, "t", seq), Range(start, end)
    if state is not BatchState.DELIVERED:
        return Batch(key, span, state)
    counts = Counts(end - start, end - start)
    return Batch(key, span, state, attempts=1, receipt=Receipt(key, span, Verdict.DELIVERED, 1, 1, counts, OLD))


def receipt(
    start: int, end: int, *, read: int | None = None, generation: int = 1, name: str = "t", at: datetime = OLD
) -> RangeReceipt:
    """A receipt of one batch, one record a position unless said otherwise."""
    size = end - start if read is None else read
    return RangeReceipt(generation, name, Range(start, end), Counts(size, size), 1, at=at)


def account(
    *receipts: RangeReceipt, batches: tuple[Batch, ...] = (), committed: int = 30, end: int = 30
) -> PartitionAccount:
    """Return the account of ``t``, which has been in this state for long."""
    part = Partition("t", committed=committed, planned_end=end, next_seq=9, batches=batches)
    return PartitionAccount(part, 0, receipts, PartitionSnapshot(1, committed, end))


def side(
    base: int, limit: int, committed: int, *receipts: RangeReceipt, generation: int = 2, kind: str = "replay"
) -> PartitionAccount:
    """A side partition that reads a stretch of ``t`` again."""
    part = Partition(f"{kind}:{generation}:t", generation=generation, base=base, committed=committed, limit=limit)
    return PartitionAccount(part, base, receipts, PartitionSnapshot(generation, committed, committed))


class TestLowWatermark:
    """The watermark's moves, and the ranges below it."""

    def test_it_follows_the_checkpoint_as_it_stood_a_window_ago(self) -> None:
        assert low_watermark(10, 100, PartitionSnapshot(1, 40, 60)) == 40

    def test_it_stays_where_the_past_is_not_known(self) -> None:
        assert low_watermark(10, 100, None) == 10

    def test_it_never_goes_back(self) -> None:
        assert low_watermark(50, 100, PartitionSnapshot(1, 40, 60)) == 50

    def test_it_passes_what_was_planned_a_window_ago_and_still_blocks(self) -> None:
        assert low_watermark(10, 40, PartitionSnapshot(1, 40, 60)) == 60

    def test_each_range_without_a_receipt_that_it_passes_is_told_with_its_batch(self) -> None:
        batches = [batch(2, 20, 30), batch(3, 30, 40, BatchState.DELIVERED), batch(4, 40, 50, BatchState.HELD)]
        part = Partition("t", committed=20, planned_end=60, next_seq=5, batches=batches)
        events = expiry_events(part, 0, 60)
        assert [(event.kind, event.seq, event.detail["range"]) for event in events] == [
            ("expired_unreceipted", 2, [20, 30]),
            ("expired_unreceipted", 4, [40, 50]),
            ("expired_unreceipted", None, [50, 60]),
        ]

    def test_what_it_has_passed_already_is_not_told_again(self) -> None:
        part = Partition("t", committed=0, planned_end=30, next_seq=3, batches=[batch(0, 0, 30)])
        assert [event.detail["range"] for event in expiry_events(part, 20, 30)] == [[20, 30]]

    def test_below_the_checkpoint_nothing_expires(self) -> None:
        assert expiry_events(Partition("t", committed=30), 0, 30) == []


class TestUnreceipted:
    """The alarm: planned, without a receipt, and nobody's."""

    def test_a_hole_below_the_checkpoint_is_found_and_one_beyond_it_too(self) -> None:
        known = account(receipt(0, 10), receipt(20, 30), batches=(batch(3, 40, 50),), end=50)
        found = find_missing([known], before=NOW)
        assert [(item.range, item.reason) for item in found] == [
            (Range(10, 20), MissingReason.UNRECEIPTED),
            (Range(30, 40), MissingReason.UNRECEIPTED),
        ]

    def test_what_a_batch_owns_is_not_missing_whatever_its_state(self) -> None:
        states = [BatchState.PLANNED, BatchState.IN_FLIGHT, BatchState.HELD]
        batches = tuple(batch(n, 30 + 10 * n, 40 + 10 * n, state) for n, state in enumerate(states))
        assert find_missing([account(receipt(0, 30), batches=batches, end=60)], before=NOW) == []

    def test_a_superseded_batch_owns_nothing(self) -> None:
        known = account(receipt(0, 30), batches=(batch(1, 30, 40, BatchState.SUPERSEDED),), end=40)
        assert [item.range for item in find_missing([known], before=NOW)] == [Range(30, 40)]

    def test_what_was_planned_a_moment_ago_is_left_out(self) -> None:
        part = Partition("t", committed=10, planned_end=40)
        known = PartitionAccount(part, 0, [receipt(0, 10)], PartitionSnapshot(1, 10, 20))
        assert [item.range for item in find_missing([known], before=NOW)] == [Range(10, 20)]

    @pytest.mark.parametrize("settled", [None, PartitionSnapshot(2, 10, 20)])
    def test_a_generation_that_has_just_begun_is_left_out(self, settled: PartitionSnapshot | None) -> None:
        known = PartitionAccount(Partition("t", committed=10, planned_end=40), 0, [], settled)
        assert find_missing([known], before=NOW) == []

    def test_below_the_low_watermark_nothing_is_looked_at(self) -> None:
        part = Partition("t", committed=30)
        assert (
            find_missing([PartitionAccount(part, 30, [receipt(20, 30)], PartitionSnapshot(1, 30, 30))], before=NOW)
            == []
        )


class TestLate:
    """Receipted ranges in which the source shows more than was read."""

    def ask(self, *accounts: PartitionAccount, late: dict[int, int]) -> list[tuple[Range, int | None, int | None]]:
        """Return the missing ranges if the source holds this many more records in the ranges that begin there."""

        def shown(_partition: str, receipted_ranges: Sequence[ReceiptedRange]) -> list[UnreadRecords | None]:
            ranges = [receipted.receipt.range for receipted in receipted_ranges]
            shows = [span.end - span.start + late.get(span.start, 0) for span in ranges]
            more = [0 if r.pending else count - r.records for count, r in zip(shows, receipted_ranges, strict=True)]
            return [
                UnreadRecords(count, extra) if extra > 0 else None for count, extra in zip(shows, more, strict=True)
            ]

        found = find_missing(accounts, before=NOW - timedelta(minutes=5), compare=shown)
        assert all(item.reason is MissingReason.LATE for item in found)
        return [(item.range, item.read, item.shown) for item in found]

    def test_a_source_that_can_never_show_more_is_taken_at_its_word(self) -> None:
        assert find_missing([account(receipt(0, 30))], before=NOW, compare=lambda _partition, _ranges: None) == []

    def test_each_range_is_listed_once_with_both_counts(self) -> None:
        known = account(receipt(0, 10), receipt(10, 20), receipt(20, 30))
        assert self.ask(known, late={10: 2}) == [(Range(10, 20), 10, 12)]

    def test_pending_acknowledgements_are_compared_too(self) -> None:
        known = account(receipt(0, 30), batches=(batch(5, 40, 50, BatchState.DELIVERED), batch(4, 30, 40)), end=50)
        assert self.ask(known, late={40: 1}) == [(Range(40, 50), 10, 11)]

    def test_fewer_records_than_were_read_are_no_matter(self) -> None:
        assert self.ask(account(receipt(0, 30)), late={0: -3}) == []

    def test_a_receipt_younger_than_the_lag_is_left_out(self) -> None:
        assert self.ask(account(receipt(0, 30, at=NOW)), late={0: 1}) == []

    def test_what_was_let_go_or_never_confirmed_is_not_compared(self) -> None:
        skipped = RangeReceipt(1, "t", Range(0, 10), Counts(), 1, skipped=1, at=OLD)
        sent = RangeReceipt(1, "t", Range(10, 20), Counts(), 1, sent=1)
        assert self.ask(account(skipped, sent, receipt(20, 30)), late={}) == []

    def test_what_reaches_below_the_low_watermark_is_not_compared(self) -> None:
        part = Partition("t", committed=30)
        known = PartitionAccount(part, 10, [receipt(0, 20), receipt(20, 30)], PartitionSnapshot(1, 30, 30))
        assert self.ask(known, late={0: 1, 20: 1}) == [(Range(20, 30), 10, 11)]

    def test_a_newer_reading_of_the_range_stands_in_for_the_older(self) -> None:
        again = side(0, 20, 20, receipt(0, 20, read=22, generation=2, name="replay:2:t"))
        known = account(receipt(0, 10), receipt(10, 20), receipt(20, 30))
        assert self.ask(known, again, late={0: 2}) == []
        assert self.ask(known, again, late={0: 3}) == [(Range(0, 20), 22, 23)]

    def test_of_two_newer_readings_the_newest_counts(self) -> None:
        first = side(0, 20, 20, receipt(0, 20, read=21, generation=2, name="replay:2:t"))
        second = side(0, 20, 20, receipt(0, 20, read=22, generation=3, name="replay:3:t"), generation=3)
        found = comparable_ranges(account(receipt(0, 20)), [first, second], before=NOW)
        assert [item.records for item in found] == [22]

    def test_a_reading_from_before_a_rewind_stands_in_for_nothing(self) -> None:
        before = side(0, 20, 20, receipt(0, 20, read=21, generation=2, name="replay:2:t"))
        rewound = Partition("t", generation=3, committed=20)
        known = PartitionAccount(rewound, 0, [receipt(0, 20, read=22, generation=3)], PartitionSnapshot(3, 20, 20))
        assert self.ask(known, before, late={0: 2}) == []

    def test_a_recovery_adds_to_the_reading_that_it_completes(self) -> None:
        again = side(7, 9, 9, receipt(7, 9, read=2, generation=2, name="recovery:2:t"), kind="recovery")
        more = side(3, 4, 4, receipt(3, 4, generation=3, name="recovery:3:t"), generation=3, kind="recovery")
        known = account(receipt(0, 10, read=7), receipt(10, 20), committed=20, end=20)
        assert self.ask(known, again, more, late={}) == []
        assert self.ask(known, again, more, late={0: 1}) == [(Range(0, 10), 10, 11)]

    def test_what_was_sent_again_because_the_sink_had_lost_it_replaces_the_reading(self) -> None:
        again = side(0, 10, 10, receipt(0, 10, read=9, generation=2, name="recovery:2:t"), kind="recovery")
        known = account(receipt(0, 10), receipt(10, 20), committed=20, end=20)
        assert self.ask(known, again, late={0: -1}) == []
        assert self.ask(known, again, late={}) == [(Range(0, 10), 9, 10)]

    def test_a_recovery_of_what_was_read_once_more_since_adds_nothing(self) -> None:
        again = side(7, 9, 9, receipt(7, 9, read=2, generation=2, name="recovery:2:t"), kind="recovery")
        whole = side(0, 10, 10, receipt(0, 10, generation=3, name="replay:3:t"), generation=3)
        known = account(receipt(0, 10, read=8), committed=10, end=10)
        assert self.ask(known, again, whole, late={}) == []
        assert self.ask(known, again, whole, late={0: 1}) == [(Range(0, 10), 10, 11)]

    def test_a_recovery_after_a_replay_adds_to_that(self) -> None:
        whole = side(0, 10, 10, receipt(0, 10, read=9, generation=2, name="replay:2:t"))
        again = side(7, 8, 8, receipt(7, 8, generation=3, name="recovery:3:t"), generation=3, kind="recovery")
        assert self.ask(account(receipt(0, 10, read=8), committed=10, end=10), whole, again, late={}) == []

    def test_what_has_changed_without_showing_which_came_late_is_told_as_that(self) -> None:
        found = find_missing(
            [account(receipt(0, 10), committed=10, end=10)], before=NOW, compare=lambda *_: [UnreadRecords(9, 0)]
        )
        assert found == [MissingRange("t", Range(0, 10), MissingReason.CHANGED, 10, 9)]
        assert not found[0].readable_alone

    def test_of_overlapping_receipts_each_late_position_is_named_once(self) -> None:
        both = [
            UnreadRecords(21, 1, (Range(12, 14),), (15,)),
            UnreadRecords(21, 1, (Range(12, 14), Range(25, 26)), (15, 27)),
        ]
        found = find_missing([account(receipt(0, 20), receipt(10, 30))], before=NOW, compare=lambda *_: both)
        assert [(item.range, item.ranges, item.shared) for item in found] == [
            (Range(0, 20), (Range(12, 14),), (15,)),
            (Range(20, 30), (Range(25, 26),), (27,)),
        ]

    def test_what_a_side_partition_is_still_to_read_has_an_owner(self) -> None:
        known = account(receipt(0, 10), receipt(10, 20), receipt(20, 30))
        assert self.ask(known, side(10, 20, 10), late={10: 2, 20: 2}) == [(Range(20, 30), 10, 12)]

    def test_what_is_still_to_be_read_is_named_to_whoever_compares(self) -> None:
        asked: list[ReceiptedRange] = []

        def shown(_partition: str, receipted_ranges: Sequence[ReceiptedRange]) -> list[None]:
            asked.extend(receipted_ranges)
            return [None] * len(receipted_ranges)

        known = [account(receipt(0, 30)), side(5, 8, 5), side(12, 20, 14, kind="recovery"), side(25, 26, 26)]
        find_missing(known, before=NOW, compare=shown)
        assert [item.pending for item in asked] == [(Range(5, 8), Range(14, 20))]

    def test_overlapping_receipts_name_each_position_once(self) -> None:
        known = account(receipt(0, 20), receipt(10, 30))
        assert [span for span, *_ in self.ask(known, late={0: 1, 10: 1})] == [Range(0, 20), Range(20, 30)]
