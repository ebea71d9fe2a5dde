"""Convert dates and timestamps to text that Python or Arrow cannot represent: infinities and distant years.

Python supports the years 1 to 9999; Arrow's own text conversion is correct from -32767 to 32767. PostgreSQL also has
infinities and wider ranges. Dead letters write years before 1 as PostgreSQL does, with BC; delivered data writes years
before 1 as ISO 8601 does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_ToText = Callable[["pa.Array"], "pa.Array"]
_MapType = type[list[Any]] | type[dict[Any, Any]]

_MICROSECONDS_A_DAY = 86_400_000_000
_DAYS_IN_400_YEARS = 146_097
"""Days in 400 years, the period of the calendar."""

_ORDINAL_OF_1970 = date(1970, 1, 1).toordinal()
_DAYS_TO_2000 = (date(2000, 1, 1) - date(1970, 1, 1)).days
"""Days from 1970 to 2000: the ADBC driver adds them to PostgreSQL's dates and timestamps, which count from 2000.

PostgreSQL stores infinity and minus infinity as the largest and the smallest integer of that count. After the addition
they wrap around.
"""

_INFINITY = {"date": -(2**31) + _DAYS_TO_2000 - 1, "timestamp": -(2**63) + _DAYS_TO_2000 * _MICROSECONDS_A_DAY - 1}
"""Integer that the ADBC driver returns for infinity, by type: days since 1970 for a date, microseconds for a timestamp.

This integer plus one stands for minus infinity.
"""

_TEXT_PATTERN = re.compile(
    r"(?P<year>\d{4,})(?P<rest>-\d\d-\d\d)(?:T(?P<time>\d\d:\d\d:\d\d(?:\.\d{6})?)(?:\+00:00)?)?(?P<bc> BC)?"
)
"""Pattern of the texts that :func:`date_text` and :func:`timestamp_text` return, except infinities."""

_FIRST_DAY, _LAST_DAY = -12_687_428, 11_248_737
"""First and last day, counted from 1970, of the years that Arrow can convert to text."""

_LEAST_UNWRAPPED = _INFINITY["timestamp"]
"""The number for infinity; a smaller number of the ADBC driver has wrapped around, and 2**64 has to be added to it.

A timestamp is a count of microseconds since 1970, which exceeds 64 bits after the year 294246. The driver then returns
a number that is less by 2**64.
"""


def to_text(column: pa.Array) -> pa.Array:
    """Convert a column of dates or timestamps to texts such as ``0044-03-15 BC``; return any other column unchanged.

    :return: an array of strings, as :func:`date_text` and :func:`timestamp_text` write them; null where the value is
        null
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date(kind):
        return pa.array([None if n is None else date_text(n) for n in _to_integers(column).to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        numbers = _to_integers(column).to_pylist()
        return pa.array(
            [None if n is None else timestamp_text(n, zoned=kind.tz is not None) for n in numbers], pa.string()
        )
    return column


def to_python(column: pa.Array, text: _ToText, maps: _MapType = list) -> list[Any]:
    """Convert Arrow values to Python objects; dates and timestamps outside Python's range become text.

    :param column: Arrow values of any type; values inside lists, structs and maps are converted, too
    :param text: function that converts an array of dates or timestamps to text: :func:`to_text` or :func:`to_iso`
    :param maps: Python type for a map: ``list`` for a list of pairs, or ``dict``
    """
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy" if maps is dict else None)
    except (OverflowError, ValueError):
        return [_to_python_value(value, text, maps) for value in column]
    return found


def _to_python_value(value: pa.Scalar, text: _ToText, maps: _MapType) -> Any:
    """Convert one Arrow value to a Python object, recursively.

    :param value: the Arrow value
    :param text: see :func:`to_python`
    :param maps: see :func:`to_python`
    """
    import pyarrow as pa

    if not value.is_valid:
        return None
    if pa.types.is_map(value.type):
        keys, items = (to_python(part, text, maps) for part in value.values.flatten())
        return maps(zip(keys, items, strict=True))
    if pa.types.is_struct(value.type):
        return {name: _to_python_value(item, text, maps) for name, item in value.items()}
    if pa.types.is_list(value.type):
        return to_python(value.values, text, maps)
    times = pa.types.is_date(value.type) or pa.types.is_timestamp(value.type)
    return text(pa.array([value], value.type))[0].as_py() if times else value.as_py()


def parse(written: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Parse texts of dates or timestamps, in ISO 8601 or as :func:`to_text` returns them; None becomes null.

    :param written: the texts
    :param kind: Arrow type of the result: a date, or a timestamp in microseconds
    :raises pyarrow.ArrowInvalid: if a text cannot be parsed; possibly ``ValueError`` or ``OverflowError`` instead
    """
    import pyarrow as pa

    column = pa.array(written, pa.string())
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # at least one is of a year that Arrow cannot parse
        stored = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return pa.array([None if text is None else _parse_one(text, kind) for text in written], stored).view(kind)


def parse_microseconds(written: str) -> int:
    """Return the microseconds since 1970 of a timestamp in UTC, given as the text of :func:`timestamp_text`.

    :param written: the text
    """
    import pyarrow as pa

    return int(parse([written], pa.timestamp("us", "UTC"))[0].value)


def is_out_of_range(column: pa.Array) -> pa.Array:
    """Return a boolean array that is true for each date or timestamp that Arrow cannot convert to text.

    :param column: column of dates or timestamps
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    number, length = _to_integers(column), 1 if pa.types.is_date(column.type) else _MICROSECONDS_A_DAY
    outside = pc.or_(pc.less(number, _FIRST_DAY * length), pc.greater_equal(number, (_LAST_DAY + 1) * length))
    return pc.fill_null(outside, False)


def to_iso(column: pa.Array, between: str = "T") -> pa.Array:
    """Convert dates or timestamps to ISO 8601 texts, with ``Z`` for timestamps in UTC.

    A year has four digits, or as many as it needs; 0000 is 1 BC, and earlier years are negative.

    :param column: dates or timestamps
    :param between: separator of date and time
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(column.type):
        text, zone = column.cast(pa.string()), ""
    else:
        local = _to_integers(column).cast(pa.timestamp("us")).cast(pa.string())
        text, zone = pc.replace_substring(local, " ", between, max_replacements=1), "Z" if column.type.tz else ""
    outside = is_out_of_range(column)
    if pc.any(outside).as_py():
        numbers = _to_integers(column).filter(outside).to_pylist()
        spelt = _iso_day if pa.types.is_date(column.type) else partial(_iso_instant, between=between)
        text = pc.replace_with_mask(text, outside, pa.array(map(spelt, numbers), pa.string()))
    return pc.binary_join_element_wise(text, pa.scalar(zone), pa.scalar("")) if zone else text


def date_text(number: int) -> str:
    """Return the text of a date, such as ``2024-02-29`` or ``0044-03-15 BC``.

    The result is ``infinity`` or ``-infinity`` for the numbers that represent these values (:data:`_INFINITY`).

    :param number: days since 1970
    """
    return _infinity(number, "date") or _date(number)


def timestamp_text(number: int, *, zoned: bool) -> str:
    """Return the text of a timestamp, such as ``2024-02-29T12:00:00+00:00`` or ``0044-03-15T00:00:00 BC``.

    The result is ``infinity`` or ``-infinity`` for the numbers that represent these values (:data:`_INFINITY`).

    :param number: microseconds since 1970; after the year 294246, where this number exceeds 64 bits, the number minus
        2**64
    :param zoned: True for a timestamp in UTC; False for a local time without a zone
    """
    days, rest = divmod(number + 2**64 if number < _LEAST_UNWRAPPED else number, _MICROSECONDS_A_DAY)
    at = _time_of_day(rest).isoformat()
    return _infinity(number, "timestamp") or _date(days, f"T{at}{'+00:00' if zoned else ''}")


def _parse_one(text: str, kind: pa.DataType) -> int:
    """Return the days or microseconds since 1970 for the text of one date or timestamp.

    Texts of :func:`date_text` and :func:`timestamp_text` are parsed here, all others by Arrow.

    :param text: the text
    :param kind: Arrow type: a date (days), or a timestamp in microseconds
    :raises pyarrow.ArrowInvalid: if Arrow cannot parse the text
    """
    import pyarrow as pa

    infinity = _INFINITY["date" if pa.types.is_date(kind) else "timestamp"]
    if text.removeprefix("-") == "infinity":
        return infinity + text.startswith("-")
    found = _TEXT_PATTERN.fullmatch(text)
    if found is None or pa.types.is_date(kind) != (found["time"] is None):
        return int(pa.scalar(text).cast(kind).value)
    year = 1 - int(found["year"]) if found["bc"] else int(found["year"])
    cycles, inside = divmod(year - 1, 400)
    days = (
        date.fromisoformat(f"{inside + 1:04}{found['rest']}").toordinal()
        - _ORDINAL_OF_1970
        + cycles * _DAYS_IN_400_YEARS
    )
    if found["time"] is None:
        return days
    at = datetime.fromisoformat(f"0001-01-01T{found['time']}") - datetime(1, 1, 1)  # noqa: DTZ001  # the time of day alone
    number = days * _MICROSECONDS_A_DAY + at // timedelta(microseconds=1)
    return number - 2**64 if 2**63 <= number < _LEAST_UNWRAPPED + 2**64 else number


def _to_integers(column: pa.Array) -> pa.Array:
    """Convert dates to days since 1970, and timestamps to microseconds since 1970."""
    import pyarrow as pa

    if pa.types.is_date(column.type):
        return column.cast(pa.date32()).cast(pa.int32())
    return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())


def _iso_day(number: int) -> str:
    year, rest = _year_and_rest(number)
    return f"{year}{rest}"


def _iso_instant(number: int, *, between: str) -> str:
    days, rest = divmod(number, _MICROSECONDS_A_DAY)
    return f"{_iso_day(days)}{between}{_time_of_day(rest).isoformat('microseconds')}"


def _date(number: int, rest: str = "") -> str:
    year, inside = _year_and_rest(number)
    return f"{year if year > 0 else 1 - year:04}{inside}{rest}{'' if year > 0 else ' BC'}"


def _year_and_rest(number: int) -> tuple[int, str]:
    """Return the year of a date (0 is 1 BC) and its month and day as text, such as ``(2024, "-02-29")``.

    :param number: days since 1970
    """
    cycles, inside = divmod(number + _ORDINAL_OF_1970 - 1, _DAYS_IN_400_YEARS)
    found = date.fromordinal(inside + 1)
    return found.year + 400 * cycles, found.isoformat()[4:]


def _time_of_day(microseconds: int) -> time:
    return (datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).time()


def _infinity(number: int, kind: str) -> str | None:
    return {_INFINITY[kind]: "infinity", _INFINITY[kind] + 1: "-infinity"}.get(number)
