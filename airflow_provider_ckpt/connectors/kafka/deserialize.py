"""Kafka messages as Arrow: position, key, value, headers and timestamp, byte for byte.

Every line here runs once a message, so each column is one comprehension, and what is rare is looked for in bulk.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.extreme_times import instant, microseconds
from airflow_provider_ckpt.connectors.protocols import POSITION

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

_NOT_AVAILABLE = 0
_LARGEST = (2**63 - 1) // 1000
"""Milliseconds that still fit when they are counted in microseconds, as Spark does."""

_UNIT = " ms"

UNREADABLE = "ckpt-unreadable-headers"
"""The one header that a message has here whose own cannot be read."""

NOT_TEXT = (SystemError, UnicodeDecodeError)
"""Exceptions of Kafka's client for a header whose name is not UTF-8. Do not request the headers again after one."""

ask_headers = methodcaller("headers")
"""Asks a message for its headers. Called as a method, where Python has got used to it, the client's error would surface
some lines later, and what it returned be no object."""

log = logging.getLogger(__name__)


def records(messages: Sequence[Message], offsets: Sequence[int]) -> pa.RecordBatch:
    """Messages, none of them an error, in the columns of a raw shape.

    :param offsets: theirs
    """
    import pyarrow as pa

    columns = {
        POSITION: pa.array(offsets, pa.int64()),
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "headers": _headers(_readable(messages)),
        "timestamp": _timestamps([message.timestamp() for message in messages]),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _readable(messages: Sequence[Message]) -> list[Any]:
    """The headers of each, or one that says that they cannot be read."""
    found: list[Any] = []
    for message in messages:
        try:
            found.append(ask_headers(message))
        except NOT_TEXT:
            log.warning(
                "The headers of offset %s in partition %s of topic %s cannot be read, since a name among them is not "
                "UTF-8; the message goes on with the header %s instead of them.",
                message.offset(),
                message.partition(),
                message.topic(),
                UNREADABLE,
            )
            found.append([(UNREADABLE, None)])
    return found


def _headers(all_headers: Sequence[Any]) -> pa.Array:
    """Each a list of pairs, empty where a message has none: Spark takes quadratic time over null lists."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    kind = pa.list_(pa.field("element", header))
    if not any(all_headers):
        ends = pa.repeat(pa.scalar(0, pa.int32()), len(all_headers) + 1)
        return pa.ListArray.from_arrays(ends, pa.array([], header), type=kind)
    rows = [[{"key": name, "value": value} for name, value in headers or ()] for headers in all_headers]
    return pa.array(rows, kind)


def _timestamps(stamps: Sequence[tuple[int, int]]) -> pa.Array:
    """Each a kind and milliseconds; null where a message has no time.

    Milliseconds that do not fit stand as that many microseconds before 1970, where no message has its time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    millis = pa.array([at for _, at in stamps], pa.int64())
    span = pc.min_max(millis)
    if _NOT_AVAILABLE in [kind for kind, _ in stamps] or span["min"].as_py() < 0 or span["max"].as_py() > _LARGEST:
        known = [
            None if kind == _NOT_AVAILABLE or at < 0 else at * 1000 if at <= _LARGEST else -at for kind, at in stamps
        ]
        return pa.array(known, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return millis.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def time_text(time: str) -> str:
    """A message's time for a person: one that stands for milliseconds that do not fit, as these.

    :param time: as a column of times says it
    """
    number = microseconds(time)
    return time if number >= 0 else f"{-number}{_UNIT}"


def time_of(text: str) -> str:
    """The inverse of :func:`time_text`."""
    return instant(-int(text.removesuffix(_UNIT)), zoned=True) if text.endswith(_UNIT) else text
