"""A data file's statistics contain bounds, except values that Python cannot represent."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ckpt.connectors.delta.stats import statistics


def of(column: pa.Array) -> dict[str, Any]:
    """The statistics of a file that holds one column, x."""
    table, file = pa.table({"x": column}), io.BytesIO()
    pq.write_table(table, file)
    found: dict[str, Any] = json.loads(statistics(pq.read_metadata(io.BytesIO(file.getvalue())), table.schema))
    return found


def test_a_day_has_bounds() -> None:
    found = of(pa.array([0, 1], pa.int32()).cast(pa.date32()))
    assert (found["minValues"], found["maxValues"]) == ({"x": "1970-01-01"}, {"x": "1970-01-02"})


@pytest.mark.parametrize("days", [10_000_000, -800_000], ids=["year 29349", "year -220"])
def test_a_day_beyond_python_has_none_and_does_no_harm(days: int) -> None:
    found = of(pa.array([0, days], pa.int32()).cast(pa.date32()))
    assert (found["numRecords"], found["minValues"], found["maxValues"]) == (2, {}, {})
    assert found["nullCount"] == {"x": 0}


def test_an_instant_beyond_python_has_none_and_does_no_harm() -> None:
    found = of(pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us", "UTC")))
    assert (found["minValues"], found["maxValues"]) == ({}, {})
