"""Kafka messages as Arrow: position, key, value, headers and timestamp, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.connectors.protocols import POSITION

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

_NOT_AVAILABLE = 0
_LARGEST = (2**63 - 1) // 1000
"""Milliseconds that still fit when they are counted in microseconds, as Spark does."""


def records(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages, none of them an error, in the columns of a raw shape."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    columns = {
        POSITION: pa.array([message.offset() for message in messages], pa.int64()),
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "headers": _headers([_own(message) for message in messages], pa.list_(pa.field("element", header))),
        "timestamp": pa.array([_micros(*message.timestamp()) for message in messages], pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _own(message: Message) -> list[tuple[str, bytes | None]] | None:
    return cast("list[tuple[str, bytes | None]] | None", message.headers())


def _headers(all_headers: Sequence[list[tuple[str, bytes | None]] | None], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if not any(all_headers):
        return pa.nulls(len(all_headers), kind)
    rows: list[list[dict[str, Any]] | None] = [
        None if headers is None else [{"key": name, "value": value} for name, value in headers]
        for headers in all_headers
    ]
    return pa.array(rows, kind)


def _micros(kind: int, millis: int) -> int | None:
    """Microseconds since the epoch; None where a message has no time, or one that Spark cannot express."""
    return None if kind == _NOT_AVAILABLE or not 0 <= millis <= _LARGEST else millis * 1000
