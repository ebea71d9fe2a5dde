"""Receipts are merged into as few range receipts as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.range_receipts import RangeReceipt, merge_receipts
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.receipt import Counts


def receipt(start: int, end: int, batches: int = 1) -> RangeReceipt:
    """A range receipt with one record a position, one of ten dead-lettered."""
    size = end - start
    return RangeReceipt(1, "t", Range(start, end), Counts(size, size - size // 10, 0, size // 10), batches)


def test_touching_receipts_become_one_with_their_counts_summed() -> None:
    merged = merge_receipts([receipt(10, 20), receipt(0, 10, 3)])
    assert merged == [RangeReceipt(1, "t", Range(0, 20), Counts(20, 18, 0, 2), 4)]


def test_a_gap_keeps_receipts_apart() -> None:
    assert [item.range for item in merge_receipts([receipt(0, 10), receipt(11, 20)])] == [Range(0, 10), Range(11, 20)]


def test_an_overlap_is_merged() -> None:
    assert [item.range for item in merge_receipts([receipt(0, 10), receipt(5, 8), receipt(7, 20)])] == [Range(0, 20)]


ranges = st.tuples(st.integers(0, 200), st.integers(1, 30)).map(lambda pair: receipt(pair[0], pair[0] + pair[1]))


@given(st.lists(ranges))
def test_merging_keeps_every_position_and_every_count(receipts: list[RangeReceipt]) -> None:
    merged = merge_receipts(receipts)
    assert [item.range for item in merged] == merge(item.range for item in receipts)
    assert sum(item.counts.read for item in merged) == sum(item.counts.read for item in receipts)
    assert sum(item.batches for item in merged) == len(receipts)


@given(st.lists(ranges))
def test_merging_again_changes_nothing(receipts: list[RangeReceipt]) -> None:
    merged = merge_receipts(receipts)
    assert merge_receipts(merged) == merged
