"""Generate SQL that fails for a value that its column would silently round or truncate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.client import literal
from airflow_provider_ckpt.connectors.postgres.column_types import SPARK_TYPES
from airflow_provider_ckpt.connectors.postgres.table import Column

if TYPE_CHECKING:
    import pyarrow as pa

MISFIT_PREFIX = "ckpt: "
"""Start of the package's part of an error message about a value that its column cannot store without loss.

The server's own text precedes it: ``invalid input syntax for type integer: "ckpt: column …``.
"""

_TIME = "'[0-9]\\s*([+-][0-9]|(?![ap]m)[a-z])'"
"""Pattern (SQL) of a text for ``time`` that also has a time zone or a day, such as ``12:00+02``."""

_TIMESTAMP = "':[0-9]{2}([.][0-9]+)?\\s*([+-][0-9]|(?![ap]m|bc)[a-z])'"
"""Pattern (SQL) of a text for ``timestamp`` that also has a time zone, such as ``2026-01-31 12:00+02``."""

_FRACTION = "'[.][0-9]{6}[0-9]*[1-9]'"
"""Pattern (SQL) of a fraction of a second with digits beyond microseconds."""

_LONG_NUMBER = "'[0-9.]{16}'"
"""Pattern (SQL) of a number that may have more digits than ``double precision`` stores."""

_LOST_WORDS = {
    "date": ["':'"],
    "daterange": ["':'"],
    "datemultirange": ["':'"],
    "time": [_TIME, _FRACTION],
    "timestamp": [_TIMESTAMP, _FRACTION],
    "tsrange": [_TIMESTAMP, _FRACTION],
    "tsmultirange": [_TIMESTAMP, _FRACTION],
    **{kind: [_FRACTION] for kind in ("timetz", "timestamptz", "tstzrange", "tstzmultirange", "interval")},
}
"""By type, regular expressions (SQL) for what the type accepts in a text but does not store.

For example ``:`` for ``date``, which drops the time of day of ``2026-01-31 12:00``.
"""

_NUMBERS = frozenset({"float4", "float8", "oid", "xid", "xid8", "cid"})
"""Numeric types whose input function rounds values or lets them wrap around."""

_GEOMETRY = frozenset({"point", "line", "lseg", "box", "path", "polygon", "circle"})
_RANGES = frozenset({"int4range", "int8range", "numrange", "int4multirange", "int8multirange", "nummultirange"})
"""Range types that refuse every bound that they cannot store exactly."""

MAX_NAME_BYTES = 63
"""Greatest length of a value of type ``name``, in bytes."""

_SHOWN_CHARACTERS = 200
"""Maximum number of characters of the value that the error message shows."""

_MICROSECOND_DIGITS = 6


def exact_value_sql(column: Column, value: str, given: str) -> str:
    """Return an SQL expression that yields a value, or fails if the column cannot store all of the value.

    The error message then contains :data:`MISFIT_PREFIX`.

    :param column: the target column
    :param value: SQL expression of the value, of the column's type without a length
    :param given: SQL expression of the value before it was cast to that type
    """
    lost = [*_rounding_conditions(column, value), *_partly_stored_conditions(column, value, given)]
    if not lost:
        return value
    message = literal(f'{MISFIT_PREFIX}column {column.name} cannot keep all of "')
    message = f"{message} || left(CAST({given} AS text), {_SHOWN_CHARACTERS}) || '\"'"
    return (
        f"CASE WHEN {' OR '.join(lost)}"
        f" THEN CAST(CAST(CAST({message} AS integer) AS text) AS {column.type_sql}) ELSE {value} END"
    )


def _rounding_conditions(column: Column, value: str) -> Iterator[str]:
    """Yield SQL conditions that are true for a value that the column's length or scale would round or truncate.

    :param column: the target column
    :param value: SQL expression of the value, of the column's type without a length
    """
    if column.length_cast is not None:
        yield f"{column.as_stored(value)} IS DISTINCT FROM {value}"
    elif column.is_array and column.modifier >= 0:
        yield f"CAST({value} AS {column.exact_type_sql}) IS DISTINCT FROM {value}"


def _partly_stored_conditions(column: Column, value: str, given: str) -> Iterator[str]:
    """Yield SQL conditions that are true for a text that the column's type would store only in part.

    The column's length or scale does not matter here (see :func:`_rounding_conditions`). For an array the type of its
    elements decides. A type needs no condition if it refuses values that it cannot store exactly; types of extensions
    are assumed to do so.

    :param column: the target column
    :param value: SQL expression of the value, of the column's type without a length
    :param given: SQL expression of the value before it was cast to that type
    """
    kind, array = column.element, "[]" if column.is_array else ""
    before = f"CAST(CAST({given} AS text) AS text{array})"
    differs = f"CAST({value} AS text{array}) IS DISTINCT FROM {before}"
    if not array and kind in SPARK_TYPES:  # text is refused for these; see schema_check.py
        return
    if kind in _LOST_WORDS and column.element_modifier < 0:
        yield from (f"CAST({given} AS text) ~* {words}" for words in _LOST_WORDS[kind])
    elif kind in _NUMBERS or (array and kind == "numeric"):
        number = (
            f"CAST(CAST({value} AS text{array}) AS numeric{array}) IS DISTINCT FROM CAST({before} AS numeric{array})"
        )
        yield f"CASE WHEN {differs} THEN {number} ELSE false END"
    elif kind == "money" and not array:
        digits = f"CAST(regexp_replace({before}, '[^0-9.eE-]', '', 'g') AS numeric)"
        yield f"CASE WHEN {differs} THEN CAST({value} AS numeric) IS DISTINCT FROM {digits} ELSE false END"
    elif kind == "name" and not array:
        yield f"octet_length({before}) > {MAX_NAME_BYTES}"
    elif kind in _GEOMETRY:
        yield f"({differs} AND CAST({given} AS text) ~ {_LONG_NUMBER})"
    elif (
        column.element_modifier >= 0
        or kind in ("name", "char", "money")
        or (column.element_kind in "crm" and kind not in _RANGES)
    ):
        yield differs


def may_round(column: Column, kind: pa.DataType) -> bool:
    """Return whether the server would silently round values of this Arrow type when it reads their binary form.

    :param column: the target column
    :param kind: Arrow type of the values
    """
    import pyarrow as pa

    if column.receive in ("timestamp_recv", "timestamptz_recv"):
        return 0 <= column.modifier < _MICROSECOND_DIGITS
    if column.receive != "numeric_recv" or column.modifier < 0:
        return False
    scale = numeric_scale(column.modifier)
    return scale < 0 or (pa.types.is_decimal(kind) and kind.scale > scale)


def numeric_scale(modifier: int) -> int:
    """Return the scale of ``numeric(p, s)``, which may be negative, from the column's ``atttypmod``."""
    return (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400


def check_lengths(array: Any, *, pc_function: str, most: int) -> Any:
    """Return an Arrow column of texts unchanged, after checking that none is too long.

    The server would silently remove trailing blanks of a text that is too long.

    :param array: Arrow column of texts
    :param pc_function: name of the function in ``pyarrow.compute`` that measures a text
    :param most: greatest length that is allowed, in the unit of that function
    :raises pyarrow.ArrowInvalid: if a text is longer
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    longest = pc.max(pc.call_function(pc_function, [array])).as_py()
    if longest is not None and longest > most:
        raise pa.ArrowInvalid("a text that is too long")
    return array if array.type == pa.string() else array.cast(pa.string())
