"""Detect cursor values that repeat for longer than their type requires.

With such values a new row can get a position that was read already. Default expressions that call only the server's
own functions are evaluated; other code is only parsed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from airflow_provider_ckpt.connectors.postgres.client import sqlstate_of
from airflow_provider_ckpt.connectors.postgres.code_text import arguments
from airflow_provider_ckpt.connectors.postgres.column_types import DAY, INTEGERS, CursorKind, position_sql
from airflow_provider_ckpt.connectors.postgres.cursor_code import Filling
from airflow_provider_ckpt.connectors.postgres.table import Fetch

_CLOCK = re.compile(r"\bnow\s*\(|_timestamp\b|\b(?:current|local)_?(?:date|time)|timeofday|'now'", re.IGNORECASE)
_GRAINS = (DAY, 3_600_000_000, 60_000_000, 1_000_000, 1_000)
_SAMPLES = 4

_SECOND = 1_000_000
_UNITS = {"microsecond": 1, "millisecond": 1_000, "second": _SECOND}
"""Units of date_trunc in microseconds; all other units are coarser than any column."""

_ROUNDED = re.compile(
    r"\b(?:date_bin|floor|ceil|ceiling|round|trunc|div|to_char|to_date|make_date|date)\s*\("
    r"|::\s*(?:pg_catalog\.)?date\b|\bas date\b|\bcurrent_date\b",
    re.IGNORECASE,
)
_PRECISION = re.compile(
    r"\b(?:current_timestamp|localtimestamp|current_time|localtime|timestamp|timestamptz|time|timetz)\s*\(\s*([0-6])\s*\)",
    re.IGNORECASE,
)
_WHOLE_SECONDS = re.compile(
    r"\bepoch\b.*::\s*(?:pg_catalog\.)?(?:bigint|integer|int[248]?)\b", re.IGNORECASE | re.DOTALL
)
_IN_MICROSECONDS = re.compile(r"1_?000_?000\b|\b1e6\b|microsecond", re.IGNORECASE)
_UNIQUE = re.compile(r"random|nextval|uuid", re.IGNORECASE)


def coarse(fetch: Fetch, filling: Filling, kind: CursorKind, precision: int) -> bool:
    """Return whether an expression that fills a cursor repeats values for longer than the cursor's type requires.

    :param fetch: runs a query
    :param filling: the code that fills the cursor
    :param kind: the cursor's type
    :param precision: fractional digits of its seconds; negative for all six
    """
    if kind is CursorKind.DATE:
        return False
    if kind in INTEGERS:
        return _coarse_number(filling)
    own = 10 ** (6 - precision) if 0 <= precision < 6 else 1
    if filling.own and not filling.generated and _CLOCK.search(filling.texts[0]):
        return _stands_still(fetch, filling.texts[0], kind, own)
    told = filling.trigger or filling.generated or any(_CLOCK.search(text) for text in filling.values)
    return told and any(_grain(text) > own for text in filling.values)


def _coarse_number(filling: Filling) -> bool:
    """Return whether it counts seconds, milliseconds or the like, and nothing distinguishes rows of one count."""
    code = " ".join(filling.values)
    timed = _CLOCK.search(code) or (filling.generated and re.search(r"\bepoch\b|date_part", code, re.IGNORECASE))
    if not timed or _UNIQUE.search(code):
        return False
    return not _IN_MICROSECONDS.search(code) or any(_grain(text, whole=False) > 1 for text in filling.values)


def _grain(text: str, *, whole: bool = True) -> int:
    """Return the number of microseconds to which an expression rounds, judged by its text.

    :param whole: whether an integer number of seconds since 1970 counts as rounded
    """
    grain = DAY if _ROUNDED.search(text) else 1
    for argument in arguments(text, ["date_trunc"]):
        unit = re.match(r"\'(\w+?)s?\'", argument)
        grain = max(grain, _UNITS.get(unit[1].lower(), DAY) if unit else DAY)
    for digits in _PRECISION.findall(text):
        grain = max(grain, 10 ** (6 - int(digits)))
    if whole and _WHOLE_SECONDS.search(text) and not _IN_MICROSECONDS.search(text):
        grain = max(grain, _SECOND)
    return grain


def _stands_still(fetch: Fetch, text: str, kind: CursorKind, own: int) -> bool:
    """Return whether a default is coarser than its column, judged by a few evaluations.

    :param fetch: runs a query
    :param text: SQL expression of the default
    :param kind: the cursor's type
    :param own: the column's resolution in microseconds
    """
    samples: list[int] = []
    try:
        for _ in range(_SAMPLES):
            value = fetch(f"SELECT {position_sql(kind, f'({text})::{kind}')}", [])[0][0]
            samples.append(int(value or 0))
            if not _coarser(samples, own):
                return False
            time.sleep(1.1 * own / 1_000_000)
    except Exception as error:
        if sqlstate_of(error) is None:  # the connection failed, not the expression
            raise
        return False
    return True


def _coarser(samples: Sequence[int], own: int) -> bool:
    return any(all(value % grain == 0 for value in samples) for grain in _GRAINS if grain > own)
