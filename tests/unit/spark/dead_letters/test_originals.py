"""Tests of the original record in a dead letter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.dead_letters import originals
from airflow_provider_ckpt.spark.lane.gather import numbered
from airflow_provider_ckpt.spark.record_positions import RecordPositions
from tests.integration.spark.scripted import Script, ScriptedReader

_TASK = BatchTask(BatchKey(1, "t", 0), Range(0, 10), 1)
_BAD = ErrorInfo(ErrorType.SINK, "no", sqlstate="23505")
_INFINITY = 2**63 - 1
_LAST = 9_223_371_331_200_000_000 - 1
"""PostgreSQL's last microsecond, counted from 2000."""

_TO_2000 = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where PostgreSQL begins to count; the driver adds them."""


def _rows(**columns: pa.Array) -> pa.Table:
    size = len(next(iter(columns.values())))
    return pa.table({POSITION: pa.array(range(size), pa.int64()), **columns})


def _letters(records: pa.Table, errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """Return the dead letters of records at hand."""
    places = RecordPositions(records.column(POSITION))
    return originals.from_rows(ScriptedReader(Script()), _TASK, places, numbered(records), errors, raw=False)


def _value(table: pa.Table) -> dict[str, object]:
    (dead_letter,) = _letters(table, {0: _BAD})
    assert dead_letter.value is not None
    value: dict[str, object] = json.loads(dead_letter.value)
    return value


def test_a_row_becomes_json_without_loss() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    row = _rows(
        big=pa.array([2**62 + 1]),
        text=pa.array(["naïve"]),
        raw=pa.array([b"\x00\xff"]),
        exact=pa.array([Decimal("1.10")]),
        at=pa.array([moment]),
        none=pa.array([None], pa.string()),
    )
    assert _value(row) == {
        "big": 2**62 + 1,
        "text": "naïve",
        "raw": "\\x00ff",
        "exact": "1.10",
        "at": moment.isoformat(),
        "none": None,
    }


def test_a_moment_that_python_has_no_value_for_is_text() -> None:
    row = _rows(
        at=pa.array([_INFINITY - 2**64 + _TO_2000], pa.timestamp("us", tz="UTC")),
        no_zone=pa.array([-(2**63) + _TO_2000], pa.timestamp("us")),
        day=pa.array([2**31 - 1 - 2**32 + 10957], pa.int32()).cast(pa.date32()),
        far=pa.array([2**61], pa.timestamp("us", tz="UTC")),
        last=pa.array([_LAST - 2**64 + _TO_2000], pa.timestamp("us")),
        before=pa.array([-719_163], pa.int32()).cast(pa.date32()),
        usual=pa.array([0], pa.timestamp("us", tz="UTC")),
    )
    assert _value(row) == {
        "at": "infinity",
        "no_zone": "-infinity",
        "day": "infinity",
        "far": "75039-04-04T19:00:13.693952+00:00",
        "last": "294276-12-31T23:59:59.999999",
        "before": "0001-12-31 BC",
        "usual": "1970-01-01T00:00:00+00:00",
    }


def test_only_the_rows_in_question_become_letters() -> None:
    dead_letters = _letters(_rows(a=pa.array([7, 8, 9])), {1: _BAD})
    assert [(dead_letter.position, dead_letter.value) for dead_letter in dead_letters] == [(1, b'{"a": 8}')]


def _reread(read: list[int], shown: list[int], errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """Letters of a batch whose positions were ``read`` first, and are ``shown`` the second time."""

    class Reader(ScriptedReader):
        def read(self, _: BatchTask) -> Iterator[pa.RecordBatch]:
            yield from pa.table({POSITION: shown, "at": range(len(shown))}).to_batches(max_chunksize=2)

    return originals.from_source(Reader(Script()), _TASK, RecordPositions(pa.chunked_array([read])), errors, raw=False)


def test_of_records_that_share_a_position_only_those_in_question_become_letters() -> None:
    dead_letters = _reread([3, 7, 7, 7, 8], [3, 7, 7, 7, 8], {1: _BAD, 3: _BAD, 4: _BAD})
    assert [(dead_letter.position, dead_letter.value) for dead_letter in dead_letters] == [
        (7, b'{"at": 1}'),
        (7, b'{"at": 3}'),
        (8, b'{"at": 4}'),
    ]


def test_what_changed_at_another_position_moves_no_record() -> None:
    (dead_letter,) = _reread([3, 3, 7, 7], [3, 7, 7, 9], {3: _BAD})
    assert (dead_letter.position, dead_letter.value) == (7, b'{"at": 2}')


def test_records_of_a_position_that_is_gone_are_told() -> None:
    dead_letters = _reread([3, 7, 7], [3], {0: _BAD, 1: _BAD, 2: _BAD})
    assert [(dead_letter.position, dead_letter.value is None) for dead_letter in dead_letters] == [
        (3, False),
        (7, True),
        (7, True),
    ]
    assert dead_letters[1].headers["original"] == "no longer in the source"


@pytest.mark.parametrize("shown", [[3, 7], [3, 7, 7, 7]])
def test_where_a_position_has_more_or_fewer_records_than_it_had_the_batch_is_read_again(shown: list[int]) -> None:
    with pytest.raises(SourceError, match="2 records were read at position 7, and the source now shows") as raised:
        _reread([3, 7, 7], shown, {2: _BAD})
    assert raised.value.recoverable
    assert (raised.value.batch, raised.value.position) == ("t#0", 7)


def test_rejected_messages_keep_bytes_and_a_time_that_python_has_no_value_for() -> None:
    message = pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    original = pa.StructArray.from_arrays(
        [
            pa.array([b"\x00k", None]),
            pa.array([b"\xff", None], pa.binary()),
            pa.array([[{"key": "h", "value": b"\xfe"}], None], pa.list_(message)),
            pa.array([2**61, None], pa.timestamp("us", tz="UTC")),
        ],
        ["key", "value", "headers", "timestamp"],
    )
    columns = {c.VERDICT: pa.array(["MessageDeserialization"] * 2), originals.MESSAGE: pa.array(["no", None])}
    rejected = _rows(**columns, **{c.ORIGINAL: original})

    first, second = originals.from_rejected(ScriptedReader(Script()), _TASK, rejected, {}, raw=True)

    assert (first.key, first.value, first.original_headers) == (b"\x00k", b"\xff", (("h", b"\xfe"),))
    assert (first.error.type, first.error.message) == (ErrorType.MESSAGE_DESERIALIZATION, "no")
    assert first.headers["timestamp"].startswith("75039-04-04T")
    assert (second.key, second.value, second.error.message) == (None, None, "")
