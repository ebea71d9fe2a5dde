"""Records that appeared in a range after the range was read."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.connectors.record_positions import RecordPositions
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.replication.run.late_records import find_unread_positions

FEW = st.lists(st.integers(0, 30), max_size=25)
WHOLE = Range(-10, 100)


@given(FEW, FEW)
def test_the_surplus_is_what_came_and_never_what_was_read(read: list[int], shown: list[int]) -> None:
    found = find_unread_positions([(WHOLE, RecordPositions.of(read))], sorted(shown), WHOLE)

    late = Counter(shown) - Counter(read)
    inside = [position for span in found.ranges for position in range(span.start, span.end)]
    assert found.late == late.total()
    assert set(found.shared) == {position for position in late if position in read}
    assert not set(inside) & set(read)
    assert {position for position in inside if position in shown} == set(late) - set(read)


def test_what_is_still_to_be_read_is_neither_late_nor_read_with_what_is() -> None:
    read = [(Range(0, 10), RecordPositions.of([1, 9]))]

    found = find_unread_positions(read, [1, 2, 4, 5, 7, 9], Range(0, 10), [Range(4, 6)])

    assert (found.ranges, found.late) == ((Range(2, 3), Range(7, 8)), 2)


def test_a_later_reading_of_a_part_stands_for_the_earlier_one() -> None:
    first = (Range(0, 10), RecordPositions.of([1, 3, 5, 7]))
    again = (Range(4, 20), RecordPositions.of([4, 5, 11]))

    found = find_unread_positions([first, again], [1, 2, 3, 4, 5, 7], Range(0, 10))

    assert (found.ranges, found.late) == ((Range(2, 3), Range(7, 8)), 2)
