"""Find records that the target topic refuses for their size, timestamp, partition, missing key or header name.

A broker refuses a whole producer batch for one record. So records that it always refuses become dead letters without
being sent. Records that it may refuse are sent with a delivery callback: only the broker knows a record's compressed
size and its own clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import record_error
from airflow_provider_ckpt.connectors.kafka.serialize import Messages, header_names_and_values
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopic
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa

_RECORD_OVERHEAD = 120
"""Upper estimate, in bytes, of the part of a producer batch of one record that is not its key, value or headers."""

_CLOCK_DIFFERENCE = 60_000
"""Assumed maximum difference between the broker's clock and the local one, in milliseconds."""


def always_refused(messages: Messages, topic: SinkTopic) -> dict[int, ErrorInfo]:
    """Return the errors of records that the topic always refuses, by row number.

    :param messages: the records
    :param topic: the target topic with its settings
    """
    import pyarrow.compute as pc

    found: dict[int, ErrorInfo] = {}

    def judge(bad: pa.Array | None, reason: str) -> None:
        if bad is not None and pc.any(bad).as_py():
            for number in messages.numbers.filter(bad).to_pylist():
                found.setdefault(number, record_error(ErrorType.SERIALIZATION, f"{reason} (topic {topic.name})"))

    if topic.compacted:
        judge(_without_key(messages), "the record has no key, and the topic is compacted")
    if messages.partition is not None:
        outside = pc.or_(pc.less(messages.partition, -1), pc.greater_equal(messages.partition, topic.partitions))
        judge(outside, f"there is no such partition; there are {topic.partitions}")
    if messages.timestamp is not None:
        judge(pc.less(messages.timestamp, 0), "the record's timestamp is before 1970")
    if messages.headers is not None:
        judge(_with_nameless_header(messages.headers), "a header has no name")
    return found


def possibly_refused(messages: Messages, topic: SinkTopic, now: int) -> list[int]:
    """Return the indexes, in order, of records that the broker may refuse for their size or timestamp.

    :param messages: the records
    :param topic: the target topic with its settings
    :param now: current time in milliseconds since 1970
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    conditions: list[Any] = []
    size = _record_bytes(messages)
    if len(size) and pc.max(size).as_py() + _RECORD_OVERHEAD > topic.max_bytes:
        conditions.append(pc.greater(size, topic.max_bytes - _RECORD_OVERHEAD))
    if messages.timestamp is not None and topic.settings.get("message.timestamp.type") != "LogAppendTime":
        given = pc.greater(messages.timestamp, 0)
        late = pc.greater(
            messages.timestamp,
            _clamp_to_int64(now + topic.number("message.timestamp.after.max.ms") - _CLOCK_DIFFERENCE),
        )
        early = pc.less(
            messages.timestamp,
            _clamp_to_int64(now - topic.number("message.timestamp.before.max.ms") + _CLOCK_DIFFERENCE),
        )
        conditions.append(pc.and_(given, pc.or_(late, early)))
    found: set[int] = set()
    for condition in conditions:
        if pc.any(condition).as_py():
            found.update(pc.indices_nonzero(condition.cast(pa.bool_())).to_pylist())
    return sorted(found)


def _without_key(messages: Messages) -> pa.Array:
    import pyarrow as pa

    if messages.key is None:
        return pa.array([True] * len(messages.numbers))
    return messages.key.is_null()


def _with_nameless_header(headers: pa.Array) -> pa.Array | None:
    """Return a mask of the records that have a header without a name; None if no record has one."""
    import pyarrow.compute as pc

    names, _ = header_names_and_values(headers)
    return None if names.null_count == 0 else pc.greater(_sum_per_record(names.is_null(), headers), 0)


def _record_bytes(messages: Messages) -> pa.Array:
    """Return the size in bytes of each record's key, value and headers, with 10 bytes more for each header."""
    import pyarrow.compute as pc

    size = _byte_lengths(messages.value)
    if messages.key is not None:
        size = pc.add(size, _byte_lengths(messages.key))
    if messages.headers is not None:
        names, values = header_names_and_values(messages.headers)
        if len(names):
            each = pc.add(pc.add(_byte_lengths(names), _byte_lengths(values)), 10)
            size = pc.add(size, _sum_per_record(each, messages.headers))
    return size


def _byte_lengths(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(pc.binary_length(column.cast(pa.binary())), 0).cast(pa.int64())


def _sum_per_record(numbers: pa.Array, headers: pa.Array) -> pa.Array:
    """Return, for each record, the sum of the numbers that belong to its headers, such as their sizes in bytes."""
    import numpy as np
    import pyarrow as pa

    sums = np.concatenate(([0], np.cumsum(numbers.to_numpy(zero_copy_only=False).astype(np.int64))))
    offsets = headers.offsets.to_numpy()
    return pa.array(sums[offsets[1:]] - sums[offsets[:-1]])


def _clamp_to_int64(number: int) -> int:
    return max(min(number, 2**63 - 1), -(2**63))
