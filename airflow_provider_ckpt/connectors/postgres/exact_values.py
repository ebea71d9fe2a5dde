"""Turn values that a column would round or truncate silently into errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.client import literal
from airflow_provider_ckpt.connectors.postgres.column_types import SPARK_TYPES
from airflow_provider_ckpt.connectors.postgres.table import Column

if TYPE_CHECKING:
    import pyarrow as pa

MISFIT_PREFIX = "ckpt: "
"""Prefix of the message about a value that its column cannot store without loss; the server adds its own text."""

_TIME = "'[0-9]\\s*([+-][0-9]|(?![ap]m)[a-z])'"
"""Finds the zone, or the day, that a text for ``time`` has too many."""

_TIMESTAMP = "':[0-9]{2}([.][0-9]+)?\\s*([+-][0-9]|(?![ap]m|bc)[a-z])'"
"""Finds the zone that a text for ``timestamp`` has too many."""

_FRACTION = "'[.][0-9]{6}[0-9]*[1-9]'"
"""Finds digits beyond microseconds."""

_LONG_NUMBER = "'[0-9.]{16}'"
"""Finds a number that may have more digits than ``double precision`` keeps."""

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
"""Regular expressions for parts of a text that a type reads and does not keep."""

_NUMBERS = frozenset({"float4", "float8", "oid", "xid", "xid8", "cid"})
"""Numbers that are rounded, or wrap around, as they are read."""

_GEOMETRY = frozenset({"point", "line", "lseg", "box", "path", "polygon", "circle"})
_RANGES = frozenset({"int4range", "int8range", "numrange", "int4multirange", "int8multirange", "nummultirange"})
"""Ranges that refuse every bound that they cannot keep."""

MAX_NAME_BYTES = 63
"""Greatest length of a value of type ``name``, in bytes."""

_SHOWN_CHARACTERS = 200
"""Number of characters of such a value in the message."""

_MICROSECOND_DIGITS = 6


def exact_value_sql(column: Column, value: str, given: str) -> str:
    """Return an SQL expression of the value that fails with :data:`MISFIT_PREFIX` if the column cannot store all of it.

    :param column: the target column
    :param value: SQL expression of the value, of the column's type without a length
    :param given: SQL expression of the value before it was cast
    """
    lost = [*_cut(column, value), *_misread(column, value, given)]
    if not lost:
        return value
    message = literal(f'{MISFIT_PREFIX}column {column.name} cannot keep all of "')
    message = f"{message} || left(CAST({given} AS text), {_SHOWN_CHARACTERS}) || '\"'"
    return (
        f"CASE WHEN {' OR '.join(lost)}"
        f" THEN CAST(CAST(CAST({message} AS integer) AS text) AS {column.type_sql}) ELSE {value} END"
    )


def _cut(column: Column, value: str) -> Iterator[str]:
    """Condition for a value that the column's length or scale would round or cut."""
    if column.length_cast is not None:
        yield f"{column.as_stored(value)} IS DISTINCT FROM {value}"
    elif column.is_array and column.modifier >= 0:
        yield f"CAST({value} AS {column.exact_type_sql}) IS DISTINCT FROM {value}"


def _misread(column: Column, value: str, given: str) -> Iterator[str]:
    """Condition for a text of which the column's type, whatever its length, keeps only a part.

    Arrays are judged by their elements. Types that refuse what they cannot keep need none, and types of extensions are
    taken for such.
    """
    kind, array = column.element, "[]" if column.is_array else ""
    before = f"CAST(CAST({given} AS text) AS text{array})"
    differs = f"CAST({value} AS text{array}) IS DISTINCT FROM {before}"
    if not array and kind in SPARK_TYPES:  # no text goes into these; see fitting.py
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
    """Return whether the server would silently round values of this Arrow type as it reads their binary form."""
    import pyarrow as pa

    if column.receive in ("timestamp_recv", "timestamptz_recv"):
        return 0 <= column.modifier < _MICROSECOND_DIGITS
    if column.receive != "numeric_recv" or column.modifier < 0:
        return False
    scale = numeric_scale(column.modifier)
    return scale < 0 or (pa.types.is_decimal(kind) and kind.scale > scale)


def numeric_scale(modifier: int) -> int:
    """Return the scale of ``numeric(p, s)``, which may be negative, from the column's type modifier."""
    return (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400


def check_lengths(array: Any, *, pc_function: str, most: int) -> Any:
    """Return the texts, checked for their length: the server would silently remove trailing blanks of longer ones.

    :param array: Arrow column of texts
    :param pc_function: name of the function in ``pyarrow.compute`` that measures a text
    :param most: greatest length
    :raises pyarrow.ArrowInvalid: if a text is longer
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    longest = pc.max(pc.call_function(pc_function, [array])).as_py()
    if longest is not None and longest > most:
        raise pa.ArrowInvalid("a text that is too long")
    return array if array.type == pa.string() else array.cast(pa.string())
