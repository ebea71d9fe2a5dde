"""The rows that Spark passes to a lane are divided by batch: none is lost, and rows in a wrong order are refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest

from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.spark.jdbc import SlotStream


def rows(*slots: int) -> pa.RecordBatch:
    """Rows of some slots, numbered in each by where they stand."""
    return pa.RecordBatch.from_pydict({"slot": pa.array(slots, pa.int32()), "at": pa.array(range(len(slots)))})


def read(stream: SlotStream, slot: int) -> list[int]:
    return [number for batch in stream.of(slot) for number in batch.column("at").to_pylist()]


@pytest.mark.parametrize("cuts", [[], [1], [3], [2, 5], [1, 2, 3, 4, 5]])
def test_each_slot_gets_its_rows_however_spark_cuts_them(cuts: Sequence[int]) -> None:
    whole = rows(4, 4, 4, 6, 6, 7)
    edges = [0, *cuts, 6]
    parts = [whole.slice(start, end - start) for start, end in pairwise(edges)]
    stream = SlotStream(iter([rows(), *parts]), 4, 4)

    assert [read(stream, slot) for slot in range(4)] == [[0, 1, 2], [], [3, 4], [5]]


def test_a_slot_that_nobody_asked_for_is_passed_over() -> None:
    stream = SlotStream(iter([rows(0, 1, 1, 2)]), 0, 3)

    assert read(stream, 2) == [3]


def test_a_slot_that_was_left_halfway_costs_the_next_ones_nothing() -> None:
    stream = SlotStream(iter([rows(0, 0, 1), rows(1, 2)]), 0, 3)
    next(stream.of(0)).validate()

    assert [read(stream, 1), read(stream, 2)] == [[2, 0], [1]]


@pytest.mark.parametrize("batch", [rows(3), rows(0, 5), rows(1, 0)], ids=["before", "behind", "out of order"])
def test_rows_that_are_not_the_lane_s_or_come_out_of_order_are_refused(batch: pa.RecordBatch) -> None:
    first = 4 if batch.column(0)[0].as_py() == 3 else 0
    with pytest.raises(SourceError, match="another"):
        read(SlotStream(iter([batch]), first, 4), 0)
