"""The positions that a receipt keeps, and what a range shows beyond them."""

from __future__ import annotations

from collections import Counter
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.connectors.record_positions import (
    MAX_CHARACTERS,
    PositionDigest,
    RecordPositions,
    find_surplus,
)
from airflow_provider_ckpt.core.ranges import Range

NUMBERS = st.lists(st.integers(-(2**62), 2**62), max_size=60)
FEW = st.lists(st.integers(0, 30), max_size=25)
WHOLE = Range(-10, 100)


@given(NUMBERS)
def test_what_a_receipt_keeps_comes_back_whole(numbers: list[int]) -> None:
    kept = RecordPositions.parse(RecordPositions.of(numbers).text())

    assert kept == RecordPositions.of(numbers)
    found = kept.all()
    assert found is None or found.tolist() == sorted(numbers)
    assert found is not None or max(numbers) - min(numbers) >= 2**63


@given(FEW, FEW)
def test_a_digest_tells_positions_apart_whatever_their_order(some: list[int], others: list[int]) -> None:
    same = RecordPositions.of(some).digest.same(RecordPositions.of(others).digest)

    assert same == (sorted(some) == sorted(others))


@given(NUMBERS, NUMBERS)
def test_the_digest_of_two_is_their_total(some: list[int], others: list[int]) -> None:
    parts = [RecordPositions.of(some).digest, RecordPositions.of(others).digest]

    assert PositionDigest.total(parts) == RecordPositions.of([*some, *others]).digest


def test_where_only_counts_are_known_those_decide() -> None:
    assert PositionDigest(3, None).same(RecordPositions.of([4, 5, 6]).digest)
    assert not PositionDigest(3, None).same(RecordPositions.of([4, 5]).digest)


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        (list(range(10**9, 10**9 + 50_000)), True),
        (list(range(0, 2_500_000, 50)), True),
        (Random(1).sample(range(2**40), 50_000), False),
    ],
    ids=["dense", "in steps", "scattered"],
)
def test_all_positions_are_kept_where_that_takes_little_room_and_time(numbers: list[int], kept: bool) -> None:
    began = process_time()
    positions = RecordPositions.of(numbers)

    assert (positions.packed is not None) is kept
    assert len(positions.text()) < MAX_CHARACTERS + 100
    assert process_time() - began < 1


@given(FEW, FEW)
def test_the_surplus_is_what_came_and_never_what_was_read(read: list[int], shown: list[int]) -> None:
    found = find_surplus([(WHOLE, RecordPositions.of(read))], sorted(shown), WHOLE)

    late = Counter(shown) - Counter(read)
    inside = [position for span in found.ranges for position in range(span.start, span.end)]
    assert found.late == late.total()
    assert set(found.shared) == {position for position in late if position in read}
    assert not set(inside) & set(read)
    assert {position for position in inside if position in shown} == set(late) - set(read)


def test_what_is_still_to_be_read_is_neither_late_nor_read_with_what_is() -> None:
    read = [(Range(0, 10), RecordPositions.of([1, 9]))]

    found = find_surplus(read, [1, 2, 4, 5, 7, 9], Range(0, 10), [Range(4, 6)])

    assert (found.ranges, found.late) == ((Range(2, 3), Range(7, 8)), 2)


def test_a_later_reading_of_a_part_stands_for_the_earlier_one() -> None:
    first = (Range(0, 10), RecordPositions.of([1, 3, 5, 7]))
    again = (Range(4, 20), RecordPositions.of([4, 5, 11]))

    found = find_surplus([first, again], [1, 2, 3, 4, 5, 7], Range(0, 10))

    assert (found.ranges, found.late) == ((Range(2, 3), Range(7, 8)), 2)
