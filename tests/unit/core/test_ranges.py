"""Operations on ranges agree with operations on sets of positions."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import START, Range, contiguous_end, merge, position_text, subtract

ranges = st.builds(lambda start, size: Range(start, start + size), st.integers(-30, 30), st.integers(1, 12))
many = st.lists(ranges, max_size=8)


def positions(items: list[Range]) -> set[int]:
    return {position for item in items for position in range(item.start, item.end)}


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[4, 4\)"):
        Range(4, 4)
    with pytest.raises(ValueError, match=r"\[5, 4\)"):
        Range(5, 4)


def test_the_position_before_all_others_is_shown_as_start() -> None:
    assert [position_text(START), position_text(START + 1), position_text(1234, ",")] == [
        "start",
        "-9223372036854775807",
        "1,234",
    ]
    assert str(Range(START, 10)) == "[start, 10)"
    assert str(LedgerStateError("it is gone.", position=START)) == "[Processing] position start: it is gone."


@given(ranges, ranges)
def test_ranges_overlap_exactly_if_they_share_a_position(one: Range, other: Range) -> None:
    assert one.overlaps(other) == bool(positions([one]) & positions([other]))
    assert one.overlaps(other) == other.overlaps(one)


@given(many)
def test_merging_keeps_the_positions_and_leaves_no_two_ranges_that_touch(items: list[Range]) -> None:
    merged = merge(items)

    assert positions(merged) == positions(items)
    assert all(left.end < right.start for left, right in pairwise(merged))


@given(st.integers(-35, 35), many)
def test_the_contiguous_end_is_the_first_position_that_nothing_covers(start: int, items: list[Range]) -> None:
    covered = positions(items)
    first_uncovered = next(position for position in range(start, 100) if position not in covered)

    assert contiguous_end(start, items) == first_uncovered


@given(ranges, many)
def test_subtracting_leaves_what_is_inside_and_not_covered(whole: Range, covered: list[Range]) -> None:
    gaps = subtract(whole, covered)

    assert positions(gaps) == positions([whole]) - positions(covered)
    assert gaps == merge(gaps)


@given(st.lists(ranges, min_size=1, max_size=8), st.randoms())
def test_the_order_in_which_ranges_are_given_does_not_matter(items: list[Range], random: Random) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)

    assert merge(shuffled) == merge(items)
