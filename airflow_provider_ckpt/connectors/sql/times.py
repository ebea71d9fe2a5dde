"""Convert dates and times to positions and back; a position counts microseconds since 1970 in UTC."""

from __future__ import annotations

from datetime import date, datetime, timedelta

MICROSECONDS_A_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # databases have times without a zone


def to_datetime(position: int) -> datetime | None:
    """Return the time without a zone at a position; None if it lies outside of the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=position)
    except OverflowError:
        return None


def to_date(position: int) -> date | None:
    """Return the first date at or after a position; None if the date lies outside of the years 1 to 9999."""
    time = to_datetime(-(-position // MICROSECONDS_A_DAY) * MICROSECONDS_A_DAY)
    return None if time is None else time.date()


def position_of(value: date | datetime) -> int:
    """Return the position of a date, or of a time without a zone."""
    time = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return (time - _EPOCH) // timedelta(microseconds=1)
