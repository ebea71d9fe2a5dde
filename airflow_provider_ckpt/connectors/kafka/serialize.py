"""Convert rows to Kafka messages: a row with the columns of a message directly, any other row to a JSON object.

Rows have the columns of a message if there is a column ``value``, and no column other than ``key``, ``value``,
``headers``, ``timestamp`` and ``partition``, and ``sink.key`` is not set. A null value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors import json_encoding
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_TYPES = ("binary", "string")
_INTEGER_TYPES = ("tinyint", "smallint", "int", "bigint")
_COLUMN_TYPES = {
    "key": _BYTES_TYPES,
    "value": _BYTES_TYPES,
    "headers": ("array<struct<", "map<string,"),
    "timestamp": ("timestamp", "timestamp_ntz", "bigint"),
    "partition": _INTEGER_TYPES,
}
"""Columns of a message, each with the Spark SQL types, or prefixes of types, that it may have."""


def have_message_columns(names: Sequence[str], key: Sequence[str]) -> bool:
    """Return whether rows with these columns are sent as messages, not as JSON objects.

    :param names: the rows' columns
    :param key: columns of ``sink.key``
    """
    return not key and "value" in names and set(names) <= set(_COLUMN_TYPES)


def refuse_unfit_columns(columns: Sequence[tuple[str, str]], key: Sequence[str], pipeline: str) -> None:
    """Raise an error if rows with these columns cannot be converted to messages.

    :param columns: name and Spark SQL type of each column
    :param key: columns of ``sink.key``
    :param pipeline: the pipeline's name, for the error message
    :raises ConfigError: naming the columns that are unsuitable, or that ``sink.key`` names and the rows lack
    """
    names = [name for name, _ in columns]
    missing = [name for name in key if name not in names]
    if missing:
        raise ConfigError(
            f"the rows have no column {', '.join(missing)}, part of sink.key; they have {', '.join(names)}",
            pipeline=pipeline,
            hint="Name columns of the rows, or add them to transform.select.",
        )
    if not have_message_columns(names, key):
        return
    wrong = [
        f"{name} {kind}"
        for name, kind in columns
        if not _is_allowed(kind.lower().replace(" ", ""), _COLUMN_TYPES[name])
    ]
    if wrong:
        allowed = "; ".join(f"{name}: {', '.join(kinds)}" for name, kinds in _COLUMN_TYPES.items())
        raise ConfigError(
            f"the rows have the columns of a message, but {', '.join(wrong)} cannot be part of one",
            pipeline=pipeline,
            hint=f"Cast it in transform.select ({allowed}), or set sink.key to send each row as a JSON object.",
        )


def _is_allowed(kind: str, allowed: Sequence[str]) -> bool:
    return any(kind.startswith(item) if item[-1] in "<," else kind == item for item in allowed)


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages as Arrow arrays, in the order of sending; an array is None if no message has the field.

    :param numbers: row numbers, int64
    :param value: values, binary
    :param key: keys, binary
    :param headers: lists of structs of name and value, or maps of name to value
    :param timestamp: milliseconds since 1970 in UTC, int64; 0 for the time of sending
    :param partition: partition numbers, int32; -1 for the partitioner's choice
    """

    numbers: pa.Array
    value: pa.Array
    key: pa.Array | None = None
    headers: pa.Array | None = None
    timestamp: pa.Array | None = None
    partition: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.numbers)


def to_messages(rows: pa.Table, key: Sequence[str]) -> Messages:
    """Convert rows to messages, in the same order: to JSON objects, unless the rows have the columns of a message.

    :param rows: the column :data:`~airflow_provider_ckpt.connectors.sink_protocol.ROW_NUMBER`, then the rows' columns
    :param key: columns of ``sink.key``: the value of a single column is the key; several columns make a JSON object
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: rows.column(name) for name in rows.column_names if name != ROW_NUMBER}
    numbers = _to_array(rows.column(ROW_NUMBER))
    if not have_message_columns(list(columns), key):
        value = json_encoding.encode_rows(columns, rows.num_rows)
        keys = {name: columns[name] for name in key}
        return Messages(numbers, value.cast(pa.binary()), _key_array(keys, rows.num_rows) if keys else None)
    timestamp, partition = columns.get("timestamp"), columns.get("partition")
    return Messages(
        numbers,
        _to_binary(columns["value"]),
        _to_binary(columns["key"]) if "key" in columns else None,
        _to_array(columns["headers"]) if "headers" in columns else None,
        None if timestamp is None else pc.fill_null(_to_milliseconds(_to_array(timestamp)), 0),
        None if partition is None else pc.fill_null(_to_array(partition).cast(pa.int32(), safe=False), -1),
    )


def to_lists(messages: Messages) -> list[list[Any] | None]:
    """Return values, keys, partitions, timestamps and headers of messages as lists; None for an absent column."""
    return [
        _to_list(messages.value),
        None if messages.key is None else _to_list(messages.key),
        None if messages.partition is None else _to_list(messages.partition),
        None if messages.timestamp is None else _to_list(messages.timestamp),
        None if messages.headers is None else _header_lists(messages.headers),
    ]


def _key_array(columns: dict[str, pa.ChunkedArray], size: int) -> pa.Array:
    import pyarrow as pa

    if len(columns) > 1:
        return json_encoding.encode_rows(columns, size).cast(pa.binary())
    (column,) = columns.values()
    array = _to_array(column)
    if pa.types.is_binary(array.type) or pa.types.is_string(array.type):
        return array.cast(pa.binary())
    text = json_encoding.encode_column(array)
    return pa.array([None if null else _unquoted(item) for item, null in _with_nulls(text, array)], pa.binary())


def _with_nulls(text: pa.Array, column: pa.Array) -> Any:
    return zip(text.to_pylist(), column.is_null().to_pylist(), strict=True)


def _unquoted(text: str) -> bytes:
    return (text[1:-1] if text.startswith('"') else text).encode()


def _to_array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _to_binary(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return _to_array(column).cast(pa.binary())


def _to_milliseconds(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return column.cast(pa.int64())


def _to_list(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def header_names_and_values(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return names and values of all messages' headers as two flat arrays, which ``column.offsets`` splits by message.

    :param column: Arrow array with each message's headers
    """
    import pyarrow as pa

    if pa.types.is_map(column.type):
        return column.keys, column.items
    return column.values.field(0), column.values.field(1)


def _header_lists(column: pa.Array) -> list[list[tuple[str, bytes | str | None]] | None]:
    """Return each message's headers as a list of pairs of name and value; None for a message without headers."""
    names, values = header_names_and_values(column)
    if column.null_count == len(column) or not len(names):
        return [None] * len(column)
    flat = list(zip(names.to_pylist(), values.to_pylist(), strict=True))
    return [None if start == end else flat[start:end] for start, end in pairwise(column.offsets.to_pylist())]
