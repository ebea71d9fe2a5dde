"""Tables are distributed over groups of about equal work, and never over more tasks than the declaration allows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.table_groups import group_tables

RECORDS = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 10**9), max_size=60)


@given(RECORDS, st.integers(1, 12))
def test_each_table_is_in_one_group_and_no_group_is_empty(records: dict[str, int], groups: int) -> None:
    packed = group_tables(records, groups)

    assert len(packed) == min(groups, len(records))
    assert all(packed)
    assert sorted(name for group in packed for name in group) == sorted(records)
    assert all(records[name] == count for group in packed for name, count in group.items())


def test_5000_tables_make_as_many_tasks_as_there_are_groups() -> None:
    packed = group_tables({f"public.t{number}": number for number in range(5_000)}, 8)

    assert len(packed) == 8
    assert max(map(len, packed)) - min(map(len, packed)) <= 2


def test_the_largest_table_has_a_group_of_its_own_and_begins_first() -> None:
    packed = group_tables({"a": 10, "big": 1_000_000, "b": 20, "c": 30}, 2)

    assert packed == [{"big": 1_000_000}, {"c": 30, "b": 20, "a": 10}]


def test_equal_tables_are_spread_evenly() -> None:
    assert [len(group) for group in group_tables(dict.fromkeys("abcdef", 0), 3)] == [2, 2, 2]
