"""Rows as messages and as JSON, and rows that a target refuses; without a broker."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.connectors import json_encoding
from airflow_provider_ckpt.connectors.kafka.serialize import have_message_columns, to_lists, to_messages
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopic
from airflow_provider_ckpt.connectors.kafka.size_limits import always_refused, possibly_refused
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER

SETTINGS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "2000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(2**63 - 1),
}
TOPIC = SinkTopic("t", 2, 1, SETTINGS)
NOW = 1_700_000_000_000
FAR = NOW * 1_000_000
"""Microseconds of a time that was written in milliseconds and read as seconds."""

TIME = pa.timestamp("us")
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table(**columns: Any) -> pa.Table:
    arrays = {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    size = len(next(iter(arrays.values())))
    return pa.table({ROW_NUMBER: pa.array(range(100, 100 + size), pa.int64()), **arrays})


def encoded(column: pa.Array) -> list[Any]:
    return [json.loads(text) for text in json_encoding.encode_column(column).to_pylist()]


@pytest.mark.parametrize(
    ("names", "key", "expected"),
    [
        (["value"], [], True),
        (["key", "value", "headers", "timestamp", "partition"], [], True),
        (["key"], [], False),
        (["id", "value"], [], False),
        (["key", "value"], ["key"], False),
    ],
)
def test_rows_are_messages_by_the_names_of_their_columns(names: list[str], key: list[str], expected: bool) -> None:
    assert have_message_columns(names, key) is expected


@given(st.lists(st.none() | st.text(), min_size=1))
def test_any_text_survives_json(texts: list[str | None]) -> None:
    assert encoded(pa.array([t and t.encode("utf-8", "replace").decode() for t in texts], pa.string())) == [
        t and t.encode("utf-8", "replace").decode() for t in texts
    ]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, 2**63 - 1]), [1, None, 2**63 - 1]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array([1.5, None, 1e300]), [1.5, None, 1e300]),
        (pa.array([1.5, float("nan"), float("inf"), float("-inf")]), [1.5, "NaN", "Infinity", "-Infinity"]),
        (pa.array([b"\xff\x00", None]), ["/wA=", None]),
        (pa.array([0, None], pa.date32()), ["1970-01-01", None]),
        (pa.array([1, None], pa.timestamp("us", "Europe/Berlin")), ["1970-01-01T00:00:00.000001Z", None]),
        (pa.array([1], pa.timestamp("us")), ["1970-01-01T00:00:00.000001"]),
        (
            pa.array([FAR, -FAR, None, 0], pa.timestamp("us", "UTC")),
            ["55840-11-08T22:13:20.000000Z", "-51901-02-22T01:46:40.000000Z", None, "1970-01-01T00:00:00.000000Z"],
        ),
        (pa.array([2**31 - 1, -737_463], pa.int32()).cast(pa.date32()), ["5881580-07-11", "-0050-11-24"]),
        (
            pa.array([[FAR, None, 0], None], pa.list_(pa.timestamp("us"))),
            [["55840-11-08T22:13:20.000000", None, "1970-01-01T00:00:00.000000"], None],
        ),
        (
            pa.array([{"a": FAR, "b": [("k", FAR)]}], pa.struct([("a", TIME), ("b", pa.map_(pa.string(), TIME))])),
            [{"a": "55840-11-08T22:13:20.000000", "b": {"k": "55840-11-08T22:13:20.000000"}}],
        ),
        (pa.array([[1, None], None, []]), [[1, None], None, []]),
        (pa.array([{"a": 1, "b": "x"}]), [{"a": 1, "b": "x"}]),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), [{"a": 1}]),
    ],
)
def test_values_as_json(column: pa.Array, expected: list[Any]) -> None:
    assert encoded(column) == expected


def test_decimals_keep_every_digit() -> None:
    column = pa.array([Decimal("1234567890123456789.10"), None], pa.decimal128(38, 2))

    assert json_encoding.encode_column(column).to_pylist() == ["1234567890123456789.10", "null"]
    assert json_encoding.encode_column(pa.array([[Decimal("0.10")]], pa.list_(pa.decimal128(4, 2)))).to_pylist() == [
        "[0.10]"
    ]


def test_a_row_becomes_an_object_with_its_fields_in_order() -> None:
    messages = to_messages(table(id=[1, 2], **{'na"me': ["x", None]}), [])

    assert messages.value.to_pylist() == [b'{"id":1,"na\\"me":"x"}', b'{"id":2,"na\\"me":null}']
    assert messages.key is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (["id"], [b"1", None]),
        (["name"], [b"x", b"y"]),
        (["raw"], [b"\xff", None]),
        (["day"], [b"1970-01-01", None]),
        (["id", "name"], [b'{"id":1,"name":"x"}', b'{"id":null,"name":"y"}']),
    ],
)
def test_the_key_is_a_column_as_it_is_or_an_object_of_several(key: list[str], expected: list[bytes | None]) -> None:
    rows = table(
        id=pa.array([1, None]),
        name=["x", "y"],
        raw=pa.array([b"\xff", None]),
        day=pa.array([0, None], pa.date32()),
    )

    found = to_messages(rows, key).key

    assert found is not None
    assert found.to_pylist() == expected


@pytest.mark.parametrize("kind", [PAIRS, pa.map_(pa.string(), pa.binary())])
def test_headers_keep_order_and_repetition(kind: pa.DataType) -> None:
    pairs: list[Any] = [[("a", b"1"), ("a", None)], None, [], [("b", b"")]]
    given_ = [row and [{"key": n, "value": v} for n, v in row] for row in pairs] if kind == PAIRS else pairs
    headers = pa.array([[], *given_], kind).slice(1)

    found = to_lists(to_messages(table(value=["1", "2", "3", "4"], headers=headers), []))

    assert found[4] == [[("a", b"1"), ("a", None)], None, None, [("b", b"")]]


def test_times_are_milliseconds_and_none_is_now() -> None:
    rows = table(value=["a", "b"], timestamp=pa.array([1_234_567, None], pa.timestamp("us", "UTC")))

    assert to_lists(to_messages(rows, []))[3] == [1234, 0]


def test_what_cannot_be_sent_at_all() -> None:
    rows = table(
        key=pa.array([b"k", None, b"k", b"k", b"k"]),
        value=["a", "b", "c", "d", "e"],
        partition=pa.array([0, 0, 2, None, 1]),
        timestamp=pa.array([0, 0, 0, -5, 0]),
        headers=pa.array([[], [], [], [], [{"key": None, "value": b""}]], PAIRS),
    )

    found = always_refused(to_messages(rows, []), TOPIC)
    compacted = always_refused(to_messages(rows, []), SinkTopic("t", 2, 1, {**SETTINGS, "cleanup.policy": "compact"}))

    assert sorted(found) == [102, 103, 104]
    assert sorted(compacted) == [101, 102, 103, 104]
    assert not any(error.recoverable for error in compacted.values())


def test_what_the_broker_may_refuse_is_watched() -> None:
    rows = table(
        value=[b"a", b"b" * 1990, b"c", b"d"],
        timestamp=pa.array([NOW, NOW, NOW + 7_200_000, None]),
        headers=pa.array([None, None, None, [{"key": "h", "value": b"x" * 1990}]], PAIRS),
    )

    assert possibly_refused(to_messages(rows, []), TOPIC, NOW) == [1, 2, 3]
