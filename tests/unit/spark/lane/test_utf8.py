"""Rows with text that is not UTF-8 are found, at any depth of nested types, and no other rows."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.spark.lane.utf8 import invalid_utf8

GOOD, BAD = "é".encode(), b"\xff\xfe"
KIND = ErrorType.TRANSFORM_EVALUATION


def texts(*values: bytes | None) -> pa.Array:
    """A column of texts that Arrow has not looked at."""
    return pa.array(values, pa.binary()).view(pa.string())


def table(**columns: list[pa.Array]) -> pa.Table:
    """Rows at positions 10, 11 and so on."""
    chunked = {name: pa.chunked_array(chunks) for name, chunks in columns.items()}
    size = len(next(iter(chunked.values())))
    return pa.table({ROW_NUMBER: pa.array(range(10, 10 + size), pa.int64()), **chunked})


def test_the_bad_rows_of_every_chunk_and_column_are_found() -> None:
    rows = table(a=[texts(GOOD, BAD), texts(None, GOOD, BAD)], b=[texts(GOOD, BAD, GOOD, BAD, GOOD)])
    found = invalid_utf8(rows, KIND)
    assert sorted(found) == [11, 13, 14]
    assert {error.type for error in found.values()} == {KIND}
    assert (found[11].message[:1], found[13].message[:1]) == ("a", "b")


def test_texts_inside_lists_and_structs_are_looked_at() -> None:
    inside = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), texts(GOOD, GOOD, BAD))
    assert sorted(invalid_utf8(table(a=[pa.StructArray.from_arrays([inside], ["x"])]), KIND)) == [11]


def test_bytes_are_no_texts() -> None:
    assert invalid_utf8(table(a=[pa.array([BAD, GOOD])], b=[texts(GOOD, None)]), KIND) == {}
