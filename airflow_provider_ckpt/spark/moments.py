"""Days and instants as text where Python has no value for them: PostgreSQL's infinities, and years beyond 1 to 9999.

Arrow's own texts wrap around at year 32767, so they are no help. The notation is ISO 8601, BC as PostgreSQL has it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = 86_400_000_000
_CYCLE = 146_097
"""Days in 400 years, after which the calendar repeats."""

_OF_1970 = date(1970, 1, 1).toordinal()
_TO_2000 = (date(2000, 1, 1) - date(1970, 1, 1)).days
"""PostgreSQL counts from 2000; its infinities are the ends of that count, which the driver has wrapped around."""

_WRAPPED = -(2**63) + _TO_2000 * _DAY - 1
"""Below it lie PostgreSQL's times after the year 294246, wrapped around like its infinities."""


def texts(column: pa.Array) -> pa.Array:
    """A column of days or instants as texts; any other column as it is."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date32(kind):
        return pa.array([None if n is None else day(n) for n in column.cast(pa.int32()).to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        numbers = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        return pa.array([None if n is None else instant(n, zoned=kind.tz is not None) for n in numbers], pa.string())
    return column


def day(number: int) -> str:
    """A day by its number since 1970."""
    return _infinity(number, _TO_2000, 32) or _date(number)


def instant(number: int, *, zoned: bool) -> str:
    """An instant by its microseconds since 1970.

    :param zoned: whether it is one in UTC, or a local time of no known zone
    """
    days, rest = divmod(number + 2**64 if number < _WRAPPED else number, _DAY)
    at = (datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=rest)).time().isoformat()
    return _infinity(number, _TO_2000 * _DAY, 64) or _date(days, f"T{at}{'+00:00' if zoned else ''}")


def _date(number: int, rest: str = "") -> str:
    cycles, inside = divmod(number + _OF_1970 - 1, _CYCLE)
    found = date.fromordinal(inside + 1)
    year = found.year + 400 * cycles
    return f"{year if year > 0 else 1 - year:04}{found.isoformat()[4:]}{rest}{'' if year > 0 else ' BC'}"


def _infinity(number: int, epoch: int, bits: int) -> str | None:
    half = 1 << (bits - 1)
    counted = (number - epoch + half) % (2 * half) - half
    return {half - 1: "infinity", -half: "-infinity"}.get(counted)
