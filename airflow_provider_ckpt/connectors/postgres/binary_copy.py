"""Convert Arrow columns to the form that PostgreSQL's binary COPY expects for a target table's column types.

A column whose Arrow type matches the binary form of its PostgreSQL type is sent in that form, directly to the target.
Any other column is sent to a temporary table, in a type that PostgreSQL can cast to the target column's type. If a
batch is known to contain bad values, even texts are sent as bytes, so that the server checks them row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.column_types import MICROSECONDS_A_DAY
from airflow_provider_ckpt.connectors.postgres.exact_values import (
    MAX_NAME_BYTES,
    check_lengths,
    exact_value_sql,
    may_round,
    numeric_scale,
)
from airflow_provider_ckpt.connectors.postgres.table import Column, Table
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

Encoder = Callable[[Any], Any]
"""Function that converts an Arrow column to the Arrow column that COPY sends to the server.

It raises ``pyarrow.ArrowInvalid`` if a value does not fit the type that is sent.
"""

_EPOCH_2000 = 946_684_800_000_000
_TIMESTAMP_INFINITY = -(2**63) + _EPOCH_2000 - 1
_DATE_INFINITY = -(2**31) + 10_957 - 1
"""Number of days since 1970 by which the driver represents the date ``infinity``; ``-infinity`` is one day later.

``_TIMESTAMP_INFINITY`` represents the timestamp ``infinity``, in microseconds since 1970.
"""

_DATE_SQL = (
    f"CASE {{0}} WHEN {_DATE_INFINITY} THEN date 'infinity' WHEN {_DATE_INFINITY + 1} THEN date '-infinity'"
    " ELSE date '1970-01-01' + {0} END"
)
_TIMESTAMP_SQL = (
    f"CASE {{0}} WHEN {_TIMESTAMP_INFINITY} THEN timestamp 'infinity'"
    f" WHEN {_TIMESTAMP_INFINITY + 1} THEN timestamp '-infinity'"
    f" ELSE timestamp '1970-01-01' + {{0}} / {MICROSECONDS_A_DAY} * interval '1 day'"
    f" + {{0}} % {MICROSECONDS_A_DAY} * interval '1 microsecond' END"
)
_TEXT_FUNCTIONS = frozenset(
    {"textrecv", "varcharrecv", "bpcharrecv", "citextrecv", "namerecv", "enum_recv", "json_recv", "citext_recv"}
)
_INTEGER_TYPES = {"int2recv": "int16", "int4recv": "int32", "int8recv": "int64"}
_UUID_HEX = 32


@dataclass(frozen=True, slots=True)
class ColumnEncoding:
    """Conversion of one column of a batch to the form in which COPY sends it, and to the target column's value.

    :param name: the column's name
    :param encode: function that converts the Arrow column to the Arrow column that is sent
    :param stage_type: the column's SQL type in the temporary table
    :param value: SQL expression that computes the target's value from a row ``s`` of the temporary table
    :param exact: like ``value``, but fails if the column's length or scale would truncate or round the value
    :param direct: whether COPY can write the encoded column to the target without loss, so that no temporary table is
        needed for it
    """

    name: str
    encode: Encoder
    stage_type: str
    value: str
    exact: str
    direct: bool


def column_encodings(schema: pa.Schema, target: Table, *, strict: bool) -> list[ColumnEncoding]:
    """Return the conversion of each column of a batch, except the row number and the target's generated columns.

    :param schema: Arrow schema of the batch
    :param target: the target table
    :param strict: whether to encode values in the target's binary form where there is one, which fails if the batch
        contains a bad value; False for encodings that cannot fail, so that the server finds bad values row by row
    :raises ConfigError: if the target lacks a column, or a column has a type with no form in PostgreSQL
    """
    names = [name for name in schema.names if name != ROW_NUMBER]
    missing = [name for name in names if name not in target.by_name]
    if missing:
        raise ConfigError(
            f"target {target.label} has no column {', '.join(missing)}; "
            f"the rows have {', '.join(names)}; the target has {', '.join(target.by_name)}.",
            hint="Add the column to the target, or name the columns to send in transform.select or source.columns.",
        )
    columns = [target.by_name[name] for name in names]
    return [
        _column_encoding(column, schema.field(column.name).type, strict=strict)
        for column in columns
        if not column.generated
    ]


def encode_rows(rows: pa.Table, chosen: Sequence[ColumnEncoding]) -> pa.Table:
    """Return the rows with each column encoded as it is sent.

    :param rows: rows of a batch
    :param chosen: conversions of the columns to send; the result contains only these columns
    :raises pyarrow.ArrowInvalid: if a value does not fit the type that is sent
    """
    import pyarrow as pa

    return pa.table([field.encode(rows.column(field.name)) for field in chosen], [field.name for field in chosen])


def _column_encoding(column: Column, kind: pa.DataType, *, strict: bool) -> ColumnEncoding:
    import pyarrow as pa

    name = quote(column.name)
    if pa.types.is_dictionary(kind):
        inner = _column_encoding(column, kind.value_type, strict=strict)
        decode = inner.encode
        return replace(inner, encode=lambda a: decode(a.cast(kind.value_type)))
    sent = f"s.{name}"
    native = _binary_encoder(column, kind) if strict else None
    if native is not None:
        return ColumnEncoding(
            column.name, native, column.type_sql, sent, exact_value_sql(column, sent, sent), not may_round(column, kind)
        )
    raw = None if strict else _infallible_encoding(kind)
    encode, stage_type, template = raw or (*_castable_encoding(column, kind), "{0}")
    given = template.format(sent)
    value = f"CAST({given} AS {column.type_sql})"
    return ColumnEncoding(column.name, encode, stage_type, value, exact_value_sql(column, value, given), False)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _binary_encoder(column: Column, kind: pa.DataType) -> Encoder | None:
    """Return the encoder into the binary form of the target column's type; None if there is none without loss.

    :param column: the target column
    :param kind: Arrow type of the values
    """
    import pyarrow as pa

    receive = column.receive or ""
    types = pa.types
    if types.is_null(kind):
        return _casting_encoder(pa.string())
    if receive in _INTEGER_TYPES and types.is_integer(kind):
        return _casting_encoder(pa.type_for_alias(_INTEGER_TYPES[receive]))
    simple: Mapping[str, tuple[bool, pa.DataType]] = {
        "boolrecv": (types.is_boolean(kind), pa.bool_()),
        "float4recv": (types.is_float32(kind), pa.float32()),
        "float8recv": (types.is_floating(kind) or types.is_integer(kind), pa.float64()),
        "bytearecv": (_is_bytes(kind), pa.binary()),
        "date_recv": (types.is_date(kind), pa.date32()),
    }
    if receive in simple:
        fits, wanted = simple[receive]
        return _casting_encoder(wanted) if fits else None
    if receive in ("timestamp_recv", "timestamptz_recv") and types.is_timestamp(kind):
        return _encode_timestamps
    if receive == "numeric_recv":
        return _numeric_encoder(column, kind)
    if _is_text(kind):
        return _text_encoder(column, receive)
    return None


def _text_encoder(column: Column, receive: str) -> Encoder | None:
    import pyarrow as pa

    if receive == "varcharrecv" and column.modifier >= 0:
        return partial(check_lengths, pc_function="utf8_length", most=column.modifier - 4)
    if receive == "namerecv":
        return partial(check_lengths, pc_function="binary_length", most=MAX_NAME_BYTES)
    if receive in _TEXT_FUNCTIONS:
        return _casting_encoder(pa.string())
    return {"jsonb_recv": _encode_jsonb, "uuid_recv": _encode_uuids}.get(receive)


def _numeric_encoder(column: Column, kind: pa.DataType) -> Encoder | None:
    import pyarrow as pa

    if pa.types.is_decimal128(kind):
        return lambda array: array
    if pa.types.is_integer(kind):
        return _casting_encoder(pa.decimal128(20, 0))
    if not _is_text(kind) or column.modifier < 0:
        return None
    precision, scale = (column.modifier - 4) >> 16 & 0xFFFF, numeric_scale(column.modifier)
    return _casting_encoder(pa.decimal128(38, scale)) if precision <= 38 and 0 <= scale <= precision else None


def _infallible_encoding(kind: pa.DataType) -> tuple[Encoder, str, str] | None:
    """Return an encoding for texts, dates and timestamps that accepts every value; None for other types.

    :param kind: Arrow type of the column
    :return: the encoding, the SQL type of the sent column, and the SQL expression that converts it back on the server,
        with ``{0}`` for the sent column
    """
    import pyarrow as pa

    if _is_text(kind):
        return _casting_encoder(pa.binary()), "bytea", "convert_from({0}, 'UTF8')"
    if pa.types.is_date(kind):
        return lambda array: array.cast(pa.date32()).cast(pa.int32()), "integer", _DATE_SQL
    if pa.types.is_timestamp(kind):
        zoned = kind.tz is not None
        return _microseconds, "bigint", f"({_TIMESTAMP_SQL}) AT TIME ZONE 'UTC'" if zoned else _TIMESTAMP_SQL
    return None


def _castable_encoding(column: Column, kind: pa.DataType) -> tuple[Encoder, str]:
    """Return an encoder for values that the server casts to the target column's type, and the SQL type of its result.

    :param column: the target column, for the message
    :param kind: Arrow type of the values
    :raises ConfigError: if values of this Arrow type cannot be sent
    """
    import pyarrow as pa

    types = pa.types
    choices: Sequence[tuple[bool, Encoder, str]] = (
        (types.is_null(kind), _casting_encoder(pa.string()), "text"),
        (_is_text(kind), _casting_encoder(pa.string()), "text"),
        (types.is_boolean(kind), _casting_encoder(pa.bool_()), "boolean"),
        (types.is_uint64(kind), _casting_encoder(pa.decimal128(20, 0)), "numeric"),
        (types.is_integer(kind), _casting_encoder(pa.int64()), "bigint"),
        (types.is_float32(kind), _casting_encoder(pa.float32()), "real"),
        (types.is_floating(kind), _casting_encoder(pa.float64()), "double precision"),
        (_is_bytes(kind), _casting_encoder(pa.binary()), "bytea"),
        (types.is_date(kind), _casting_encoder(pa.date32()), "date"),
        (types.is_timestamp(kind), _encode_timestamps, "timestamptz" if getattr(kind, "tz", None) else "timestamp"),
        (types.is_decimal128(kind), _casting_encoder(kind), "numeric"),
    )
    for fits, encode, stage_type in choices:
        if fits:
            return encode, stage_type
    raise ConfigError(
        f"column {column.name} has type {kind}, which the postgres sink cannot send to {column.type_sql}.",
        hint=f"Convert it to text: transform.select: {{{column.name}: to_json({column.name})}}.",
    )


def _casting_encoder(wanted: pa.DataType) -> Encoder:
    return lambda array: array if array.type == wanted else array.cast(wanted)


def _microseconds(array: Any) -> Any:
    """Return an Arrow column of timestamps as a column of integers: microseconds since 1970."""
    import pyarrow as pa

    return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())


def _encode_timestamps(array: Any) -> Any:
    """Return an Arrow column of timestamps as microseconds since 2000, the form in which PostgreSQL receives them.

    The integers that represent infinity are preserved; Arrow itself has no infinite time.

    :raises pyarrow.ArrowInvalid: if a time is too early to be represented by a 64-bit integer
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    sent = _microseconds(array)
    if pc.any(pc.less(sent, _TIMESTAMP_INFINITY)).as_py():
        raise pa.ArrowInvalid("a time so early that it would wrap around")
    return pc.subtract(sent, _EPOCH_2000)


def _encode_jsonb(array: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(pa.scalar(b"\x01"), array.cast(pa.binary()), pa.scalar(b""))


def _encode_uuids(array: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([_encode_uuid_chunk(chunk) for chunk in array.chunks], pa.binary(16))


def _encode_uuid_chunk(chunk: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    digits = pc.replace_substring(pc.fill_null(chunk, "0" * _UUID_HEX), "-", "")
    if not pc.all(pc.match_substring_regex(digits, f"^[0-9A-Fa-f]{{{_UUID_HEX}}}$")).as_py():
        raise pa.ArrowInvalid("not a uuid")
    data = pa.py_buffer(bytes.fromhex("".join(digits.to_pylist())))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(chunk), [None, data])
    return pc.if_else(chunk.is_valid(), values, pa.scalar(None, pa.binary(16)))
