"""The lag of a partition before its first batch, and its text."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.lag import PartitionLag, known_lag, lag_cells, lag_positions, lag_text, not_begun
from airflow_provider_ckpt.core.ranges import START


@pytest.mark.parametrize(
    ("committed", "end", "positions"),
    [
        (10, 25, 15),
        (25, 10, 0),
        (START, START, 0),
        (START, START + 1, None),
        (START, 1000, None),
        (START + 1, 0, -START - 1),
    ],
)
def test_a_distance_from_start_is_no_number_of_positions(committed: int, end: int, positions: int | None) -> None:
    assert PartitionLag(committed, end).positions == positions


def test_the_sum_counts_what_is_known_and_names_the_rest() -> None:
    positions = lag_positions({"t": PartitionLag(0, 1200), "u": PartitionLag(START, 7)})

    assert positions == {"t": 1200, "u": None}
    assert (known_lag(positions), not_begun(positions)) == (1200, ["u"])
    assert lag_cells(positions) == {"t": 1200, "u": "not begun"}
    assert lag_text(positions) == "1,200 (not begun: u)"
