"""Days and instants as text where Python or Arrow have none: PostgreSQL's infinities, and years far from ours.

Python knows the years 1 to 9999; Arrow's own texts are right from -32767 to 32767. Dead letters have the years before 1
as PostgreSQL writes them, with BC; what is delivered has them as ISO 8601 does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_Text = Callable[["pa.Array"], "pa.Array"]
_Maps = type[list[Any]] | type[dict[Any, Any]]

_DAY = 86_400_000_000
_CYCLE = 146_097
"""Days in 400 years, after which the calendar repeats."""

_OF_1970 = date(1970, 1, 1).toordinal()
_TO_2000 = (date(2000, 1, 1) - date(1970, 1, 1)).days
"""PostgreSQL counts from 2000; its infinities are the ends of that count, which the driver has wrapped around."""

_INFINITY = {"date": -(2**31) + _TO_2000 - 1, "timestamp": -(2**63) + _TO_2000 * _DAY - 1}
"""What the driver gives for infinity; one more is minus infinity."""

_WRITTEN = re.compile(
    r"(?P<year>\d{4,})(?P<rest>-\d\d-\d\d)(?:T(?P<time>\d\d:\d\d:\d\d(?:\.\d{6})?)(?:\+00:00)?)?(?P<bc> BC)?"
)
"""What :func:`day` and :func:`instant` write, infinity excepted."""

_FIRST_DAY, _LAST_DAY = -12_687_428, 11_248_737
"""Of the years for which Arrow has a text."""

_WRAPPED = _INFINITY["timestamp"]
"""Below it lie PostgreSQL's times after the year 294246, wrapped around like its infinities."""


def texts(column: pa.Array) -> pa.Array:
    """A column of days or instants as texts; any other column as it is."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date(kind):
        return pa.array([None if n is None else day(n) for n in _numbers(column).to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        numbers = _numbers(column).to_pylist()
        return pa.array([None if n is None else instant(n, zoned=kind.tz is not None) for n in numbers], pa.string())
    return column


def objects(column: pa.Array, text: _Text, maps: _Maps = list) -> list[Any]:
    """Values as Python has them, and where it has none for a day or an instant, however deep inside, its text.

    :param text: of days or instants, :func:`texts` or :func:`iso`
    :param maps: what becomes of a map: a list of pairs, or a dictionary
    """
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy" if maps is dict else None)
    except (OverflowError, ValueError):
        return [_object(value, text, maps) for value in column]
    return found


def _object(value: pa.Scalar, text: _Text, maps: _Maps) -> Any:
    """The same for one value, by its parts."""
    import pyarrow as pa

    if not value.is_valid:
        return None
    if pa.types.is_map(value.type):
        keys, items = (objects(part, text, maps) for part in value.values.flatten())
        return maps(zip(keys, items, strict=True))
    if pa.types.is_struct(value.type):
        return {name: _object(item, text, maps) for name, item in value.items()}
    if pa.types.is_list(value.type):
        return objects(value.values, text, maps)
    times = pa.types.is_date(value.type) or pa.types.is_timestamp(value.type)
    return text(pa.array([value], value.type))[0].as_py() if times else value.as_py()


def parsed(written: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Days or instants from texts, among others those that :func:`texts` gives.

    :param kind: of a day, or of an instant in microseconds
    :raises pyarrow.ArrowInvalid: if a text is none; or ``ValueError``, or ``OverflowError``
    """
    import pyarrow as pa

    column = pa.array(written, pa.string())
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # at least one is of a year for which Arrow has no text
        stored = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return pa.array([None if text is None else _number(text, kind) for text in written], stored).view(kind)


def microseconds(written: str) -> int:
    """The inverse of :func:`instant` for one in UTC."""
    import pyarrow as pa

    return int(parsed([written], pa.timestamp("us", "UTC"))[0].value)


def beyond(column: pa.Array) -> pa.Array:
    """Which days or instants Arrow has no text for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    number, length = _numbers(column), 1 if pa.types.is_date(column.type) else _DAY
    outside = pc.or_(pc.less(number, _FIRST_DAY * length), pc.greater_equal(number, (_LAST_DAY + 1) * length))
    return pc.fill_null(outside, False)


def iso(column: pa.Array, between: str = "T") -> pa.Array:
    """Days or instants in ISO 8601, those in UTC with ``Z``.

    A year has four digits or as many as it needs; 0000 is 1 BC, and a minus is before what is earlier.

    :param between: what stands between day and time
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(column.type):
        text, zone = column.cast(pa.string()), ""
    else:
        local = _numbers(column).cast(pa.timestamp("us")).cast(pa.string())
        text, zone = pc.replace_substring(local, " ", between, max_replacements=1), "Z" if column.type.tz else ""
    outside = beyond(column)
    if pc.any(outside).as_py():
        numbers = _numbers(column).filter(outside).to_pylist()
        spelt = _iso_day if pa.types.is_date(column.type) else partial(_iso_instant, between=between)
        text = pc.replace_with_mask(text, outside, pa.array(map(spelt, numbers), pa.string()))
    return pc.binary_join_element_wise(text, pa.scalar(zone), pa.scalar("")) if zone else text


def day(number: int) -> str:
    """A day by its number since 1970."""
    return _infinity(number, "date") or _date(number)


def instant(number: int, *, zoned: bool) -> str:
    """An instant by its microseconds since 1970.

    :param zoned: whether it is one in UTC, or a local time of no known zone
    """
    days, rest = divmod(number + 2**64 if number < _WRAPPED else number, _DAY)
    at = _time(rest).isoformat()
    return _infinity(number, "timestamp") or _date(days, f"T{at}{'+00:00' if zoned else ''}")


def _number(text: str, kind: pa.DataType) -> int:
    """The inverse of :func:`day` and :func:`instant`; Arrow reads what these do not write."""
    import pyarrow as pa

    infinity = _INFINITY["date" if pa.types.is_date(kind) else "timestamp"]
    if text.removeprefix("-") == "infinity":
        return infinity + text.startswith("-")
    found = _WRITTEN.fullmatch(text)
    if found is None or pa.types.is_date(kind) != (found["time"] is None):
        return int(pa.scalar(text).cast(kind).value)
    year = 1 - int(found["year"]) if found["bc"] else int(found["year"])
    cycles, inside = divmod(year - 1, 400)
    days = date.fromisoformat(f"{inside + 1:04}{found['rest']}").toordinal() - _OF_1970 + cycles * _CYCLE
    if found["time"] is None:
        return days
    at = datetime.fromisoformat(f"0001-01-01T{found['time']}") - datetime(1, 1, 1)  # noqa: DTZ001  # the time of day alone
    number = days * _DAY + at // timedelta(microseconds=1)
    return number - 2**64 if 2**63 <= number < _WRAPPED + 2**64 else number


def _numbers(column: pa.Array) -> pa.Array:
    """Days or microseconds since 1970."""
    import pyarrow as pa

    if pa.types.is_date(column.type):
        return column.cast(pa.date32()).cast(pa.int32())
    return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())


def _iso_day(number: int) -> str:
    year, rest = _calendar(number)
    return f"{year}{rest}"


def _iso_instant(number: int, *, between: str) -> str:
    days, rest = divmod(number, _DAY)
    return f"{_iso_day(days)}{between}{_time(rest).isoformat('microseconds')}"


def _date(number: int, rest: str = "") -> str:
    year, inside = _calendar(number)
    return f"{year if year > 0 else 1 - year:04}{inside}{rest}{'' if year > 0 else ' BC'}"


def _calendar(number: int) -> tuple[int, str]:
    """The year of a day, 0 for 1 BC, and the rest of its date."""
    cycles, inside = divmod(number + _OF_1970 - 1, _CYCLE)
    found = date.fromordinal(inside + 1)
    return found.year + 400 * cycles, found.isoformat()[4:]


def _time(microseconds: int) -> time:
    return (datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).time()


def _infinity(number: int, kind: str) -> str | None:
    return {_INFINITY[kind]: "infinity", _INFINITY[kind] + 1: "-infinity"}.get(number)
