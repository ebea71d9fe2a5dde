"""Type of a duration in a declaration: a number of seconds, or text such as ``90s``, ``5m`` or ``2h``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_SECONDS = 36_500 * _UNITS["d"]


def _parse_duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?\s*", value)
        value = float(found[1]) * _UNITS[found[2] or "s"] if found else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_SECONDS:
        raise ValueError("a duration is a number of seconds or a text such as 90s, 5m, 2h; from 0 to 36500d")
    return timedelta(seconds=value)


Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    PlainSerializer(lambda d: d.total_seconds(), return_type=float),
]
"""A duration: a number of seconds, or text with a unit (``ms``, ``s``, ``m``, ``h``, ``d``)."""
