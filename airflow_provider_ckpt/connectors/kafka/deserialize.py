"""Convert Kafka messages to Arrow: position, key, value, headers and timestamp; keys and values are not decoded.

For speed, each column is built by one comprehension, and rare cases are detected for all messages at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.extreme_times import parse_microseconds, timestamp_text
from airflow_provider_ckpt.connectors.source_protocol import POSITION

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

_NO_TIMESTAMP = 0
_MAX_MILLISECONDS = (2**63 - 1) // 1000
"""Largest number of milliseconds that fits 64 bits when converted to microseconds, Spark's unit."""

_MILLISECONDS_SUFFIX = " ms"

UNREADABLE_HEADERS = "ckpt-unreadable-headers"
"""Name of the single header, without a value, of a message whose own headers cannot be read."""

HEADER_NAME_ERRORS = (SystemError, UnicodeDecodeError)
"""Exceptions that the Kafka client raises for a header name that is not UTF-8.

After such an exception, ``headers()`` must not be called again on the same message.
"""

read_headers = methodcaller("headers")
"""Function that returns the headers of a message.

It must not be replaced by a direct method call: once the Python interpreter has specialised the call, it returns an
invalid object for unreadable headers, and the client's error is raised some lines later.
"""

log = logging.getLogger(__name__)


def to_record_batch(messages: Sequence[Message], offsets: Sequence[int]) -> pa.RecordBatch:
    """Return messages as a record batch: the position, which is the offset, and the columns of a message.

    :param messages: messages that carry no error
    :param offsets: offsets of the messages
    """
    import pyarrow as pa

    columns = {
        POSITION: pa.array(offsets, pa.int64()),
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "headers": _header_array(_read_all_headers(messages)),
        "timestamp": _timestamp_array([message.timestamp() for message in messages]),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _read_all_headers(messages: Sequence[Message]) -> list[Any]:
    """Return the headers of each message; for unreadable headers, the header :data:`UNREADABLE_HEADERS` alone."""
    found: list[Any] = []
    for message in messages:
        try:
            found.append(read_headers(message))
        except HEADER_NAME_ERRORS:
            log.warning(
                "The headers of offset %s in partition %s of topic %s cannot be read, since a header name is not "
                "UTF-8; the message is read with the header %s instead of them.",
                message.offset(),
                message.partition(),
                message.topic(),
                UNREADABLE_HEADERS,
            )
            found.append([(UNREADABLE_HEADERS, None)])
    return found


def _header_array(all_headers: Sequence[Any]) -> pa.Array:
    """Return the headers of all messages as an Arrow column of lists.

    A message without headers gets an empty list instead of a null, since Spark takes quadratic time for nulls.

    :param all_headers: names and values of the headers of each message; None for a message without headers
    """
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kind = pa.list_(pa.field("element", header))
    if not any(all_headers):
        ends = pa.repeat(pa.scalar(0, pa.int32()), len(all_headers) + 1)
        return pa.ListArray.from_arrays(ends, pa.array([], header), type=kind)
    rows = [[{"key": name, "value": value} for name, value in headers or ()] for headers in all_headers]
    return pa.array(rows, kind)


def _timestamp_array(stamps: Sequence[tuple[int, int]]) -> pa.Array:
    """Return a column of timestamps in microseconds; null if a message has no timestamp.

    A timestamp that is too large for microseconds is encoded as a time before 1970, which no message has: its
    milliseconds, negated, as microseconds.

    :param stamps: type and milliseconds since 1970 of each message's timestamp
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    millis = pa.array([at for _, at in stamps], pa.int64())
    span = pc.min_max(millis)
    if (
        _NO_TIMESTAMP in [kind for kind, _ in stamps]
        or span["min"].as_py() < 0
        or span["max"].as_py() > _MAX_MILLISECONDS
    ):
        known = [
            None if kind == _NO_TIMESTAMP or at < 0 else at * 1000 if at <= _MAX_MILLISECONDS else -at
            for kind, at in stamps
        ]
        return pa.array(known, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return millis.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def time_text(time: str) -> str:
    """Return a message's timestamp as text; a timestamp that is too large for the column becomes ``<milliseconds> ms``.

    :param time: value of the timestamp column as text; a time before 1970 encodes a timestamp that is too large
    """
    number = parse_microseconds(time)
    return time if number >= 0 else f"{-number}{_MILLISECONDS_SUFFIX}"


def parse_time_text(text: str) -> str:
    """Return the value of the timestamp column, as text, from which :func:`time_text` made the given text.

    :param text: output of :func:`time_text`
    """
    return (
        timestamp_text(-int(text.removesuffix(_MILLISECONDS_SUFFIX)), zoned=True)
        if text.endswith(_MILLISECONDS_SUFFIX)
        else text
    )
