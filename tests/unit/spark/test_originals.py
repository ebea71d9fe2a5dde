"""What a dead letter carries of the record that the source held."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from airflow_provider_ckpt.connectors.protocols import POSITION
from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import originals
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


def _value(table: pa.Table) -> dict[str, object]:
    (letter,) = originals.from_rows(ScriptedReader(Script()), _TASK, table, {0: _BAD}, raw=False)
    assert letter.value is not None
    value: dict[str, object] = json.loads(letter.value)
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
    letters = originals.from_rows(ScriptedReader(Script()), _TASK, _rows(a=pa.array([7, 8, 9])), {1: _BAD}, raw=False)
    assert [(letter.position, letter.value) for letter in letters] == [(1, b'{"a": 8}')]


def test_every_record_of_a_position_becomes_a_letter_and_one_that_is_gone_is_told() -> None:
    letters = originals.reread(ScriptedReader(Script()), _TASK, {3: _BAD, 99: _BAD}, raw=False)
    assert [(letter.position, letter.value is None) for letter in letters] == [(3, False), (99, True)]
    assert letters[1].headers["original"] == "no longer in the source"


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

    first, second = originals.of_rejected(ScriptedReader(Script()), _TASK, rejected, {}, raw=True)

    assert (first.key, first.value, first.original_headers) == (b"\x00k", b"\xff", (("h", b"\xfe"),))
    assert (first.error.type, first.error.message) == (ErrorType.MESSAGE_DESERIALIZATION, "no")
    assert first.headers["timestamp"].startswith("75039-04-04T")
    assert (second.key, second.value, second.error.message) == (None, None, "")
