"""Positions in receipts: the digest and the compressed list."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.connectors.record_positions import MAX_CHARACTERS, PositionDigest, RecordPositions

NUMBERS = st.lists(st.integers(-(2**62), 2**62), max_size=60)
FEW = st.lists(st.integers(0, 30), max_size=25)


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
