"""Numbers are divided into the fewest ranges, by which SQL statements name batches."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.ledger.store.bulk_sql import runs


def test_neighbours_form_a_run() -> None:
    assert runs([5, 1, 2, 3, 9, 8]) == [(1, 3), (5, 5), (8, 9)]


def test_no_numbers_form_none() -> None:
    assert runs([]) == []


@given(st.sets(st.integers(-50, 50)))
def test_runs_name_just_the_numbers_and_none_touch(numbers: set[int]) -> None:
    found = runs(numbers)
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))
