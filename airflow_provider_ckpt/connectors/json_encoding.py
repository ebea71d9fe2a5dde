"""Encode rows as JSON objects column by column in Arrow, without Python objects for simple values.

Numbers and booleans stay JSON numbers and booleans. Types that JSON lacks become text: times in ISO 8601 (with ``Z``
where the column has a zone; see :func:`~.extreme_times.to_iso`), binary values in base64, NaN and the infinities by
name. A variant becomes the JSON that it contains. A null stays null.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors import extreme_times, variants

if TYPE_CHECKING:
    import pyarrow as pa

_ESCAPED = r'["\\\x00-\x1f]'
_Encode = Callable[["pa.Array"], "pa.Array"]


def encode_rows(columns: dict[str, pa.ChunkedArray], size: int) -> pa.Array:
    """Return one JSON object for each row, as text.

    :param columns: columns by name, in the order of the objects' fields
    :param size: number of rows
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pieces: list[Any] = []
    for name, column in columns.items():
        opening = "," if pieces else "{"
        pieces += [pa.scalar(f"{opening}{_quote(name)}:"), encode_column(column.combine_chunks())]
    if not pieces:
        return pa.repeat(pa.scalar("{}"), size)
    return pc.binary_join_element_wise(*pieces, pa.scalar("}"), pa.scalar(""))


def encode_column(column: pa.Array) -> pa.Array:
    """Return one JSON value for each value of a column, as text."""
    import pyarrow.compute as pc

    return pc.fill_null(_encoder(column.type)(column), "null")


def _encoder(kind: pa.DataType) -> _Encode:
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _encode_strings
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _as_text
    if pa.types.is_floating(kind):
        return _encode_floats
    if pa.types.is_decimal(kind):
        return _as_text
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return lambda column: _quoted(extreme_times.to_iso(column))
    return _encode_one_by_one


def _as_text(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.string())


def _encode_floats(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    finite = pc.all(pc.is_finite(column)).as_py() is not False
    return _as_text(column) if finite else _encode_one_by_one(column)


def _quoted(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(pa.scalar('"'), column, pa.scalar('"'), pa.scalar(""))


def _encode_strings(column: pa.Array) -> pa.Array:
    """Quote texts as JSON strings; only texts with characters to escape are processed one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column.cast(pa.string())
    quoted = _quoted(column)
    special = pc.fill_null(pc.match_substring_regex(column, _ESCAPED), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = [_quote(text) for text in column.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


def _encode_one_by_one(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    found = extreme_times.to_python(column, extreme_times.to_iso, dict)
    decode = variants.decoder(column.type)
    if decode is not None:
        found = [None if value is None else decode(value) for value in found]
    return pa.array([None if value is None else _encode_value(value) for value in found], pa.string())


def _encode_value(value: Any) -> str:
    """Encode one Python value as JSON; a decimal keeps all its digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(str(name))}:{_encode_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encode_value, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: '"Infinity"', -math.inf: '"-Infinity"'}.get(value, '"NaN"')
    if isinstance(value, bytes):
        return _quote(base64.b64encode(value).decode())
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return _quote(value.isoformat() if isinstance(value, datetime | date | time) else str(value))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
