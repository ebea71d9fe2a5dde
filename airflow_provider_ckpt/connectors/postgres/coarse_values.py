"""Detect coarse cursors: code such as ``date_trunc('hour', now())`` fills them and rounds more than the column's type.

A new row of a table with a coarse cursor can get a position that was read already. A default that calls only the
server's time and arithmetic functions is evaluated a few times; other code is only parsed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from airflow_provider_ckpt.connectors.postgres.client import sqlstate_of
from airflow_provider_ckpt.connectors.postgres.column_types import (
    INTEGERS,
    MICROSECONDS_A_DAY,
    CursorKind,
    position_sql,
)
from airflow_provider_ckpt.connectors.postgres.constant_expressions import time_limited
from airflow_provider_ckpt.connectors.postgres.cursor_code import CursorAssignment
from airflow_provider_ckpt.connectors.postgres.sql_code import called_functions
from airflow_provider_ckpt.connectors.postgres.table import Fetch

_CLOCK = re.compile(r"\bnow\s*\(|_timestamp\b|\b(?:current|local)_?(?:date|time)|timeofday|'now'", re.IGNORECASE)
# fmt: off
_EVALUABLE = frozenset({
    # functions
    "age", "clock_timestamp", "current_date", "current_time", "current_timestamp", "date_bin", "date_part",
    "date_trunc", "extract", "localtime", "localtimestamp", "make_date", "make_interval", "make_timestamp",
    "make_timestamptz", "now", "statement_timestamp", "timeofday", "timezone", "to_char", "to_date", "to_timestamp",
    "transaction_timestamp", "justify_days", "justify_hours", "justify_interval",
    "abs", "ceil", "ceiling", "div", "floor", "mod", "random", "round", "trunc", "coalesce", "greatest", "least",
    "nullif",
    # types and keywords that precede a parenthesis
    "bigint", "date", "decimal", "float", "integer", "interval", "numeric", "text", "time", "timestamp", "timestamptz",
    "timetz", "varchar", "varying", "and", "or", "not", "in", "case", "when", "then", "else", "zone",
})
# fmt: on
"""Names that may stand before a parenthesis in a column default that the server is asked to evaluate.

The functions among them change nothing and have short results, so that evaluating the default does no harm.
"""

_GRANULARITIES = (MICROSECONDS_A_DAY, 3_600_000_000, 60_000_000, 1_000_000, 1_000)
_SAMPLES = 4

_SECOND = 1_000_000
_UNITS = {"microsecond": 1, "millisecond": 1_000, "second": _SECOND}
"""Units of ``date_trunc``, with their length in microseconds; all other units are coarser than any column type."""

_ROUNDING = re.compile(
    r"\b(?:date_bin|floor|ceil|ceiling|round|trunc|div|to_char|to_date|make_date|date)\s*\("
    r"|::\s*(?:pg_catalog\.)?date\b|\bas date\b|\bcurrent_date\b",
    re.IGNORECASE,
)
_PRECISION = re.compile(
    r"\b(?:current_timestamp|localtimestamp|current_time|localtime|timestamp|timestamptz|time|timetz)\s*\(\s*([0-6])\s*\)",
    re.IGNORECASE,
)
_TRUNCATED = re.compile(r"(?<![\w$])date_trunc\s*+\(\s*+(?:'(\w+?)s?')?", re.IGNORECASE)
_EPOCH = re.compile(r"\bepoch\b", re.IGNORECASE)
_TO_INTEGER = re.compile(r"::\s*+(?:pg_catalog\.)?(?:bigint|integer|int[248]?)\b", re.IGNORECASE)
_IN_MICROSECONDS = re.compile(r"1_?000_?000\b|\b1e6\b|microsecond", re.IGNORECASE)
_DISTINGUISHES_ROWS = re.compile(r"random|nextval|uuid", re.IGNORECASE)


def is_coarse(fetch: Fetch, assignment: CursorAssignment, kind: CursorKind, precision: int) -> bool:
    """Return whether the code that fills a cursor rounds its values more than the cursor's type does.

    :param fetch: runs a query on the source database and returns its rows
    :param assignment: the code that fills the cursor
    :param kind: the cursor's type
    :param precision: number of fractional digits of the cursor's seconds; negative for all six
    """
    if kind is CursorKind.DATE:
        return False
    if kind in INTEGERS:
        return _is_coarse_number(assignment)
    own = 10 ** (6 - precision) if 0 <= precision < 6 else 1
    if (
        assignment.own
        and not assignment.generated
        and _CLOCK.search(assignment.texts[0])
        and all(name in _EVALUABLE for _, name in called_functions(assignment.texts[0]))
    ):
        return _is_default_coarse(fetch, assignment.texts[0], kind, own)
    by_rule = assignment.trigger or assignment.generated or any(_CLOCK.search(text) for text in assignment.values)
    return by_rule and any(_granularity(text) > own for text in assignment.values)


def _is_coarse_number(assignment: CursorAssignment) -> bool:
    """Return whether the code that fills an integer cursor computes it from the time alone, in seconds or milliseconds.

    Several rows can then get the same number. Code that adds a random or sequential part is not coarse.

    :param assignment: the code that fills the cursor
    """
    code = " ".join(assignment.values)
    timer_only = _CLOCK.search(code) or (
        assignment.generated and re.search(r"\bepoch\b|date_part", code, re.IGNORECASE)
    )
    if not timer_only or _DISTINGUISHES_ROWS.search(code):
        return False
    return not _IN_MICROSECONDS.search(code) or any(_granularity(text, entire=False) > 1 for text in assignment.values)


def _granularity(text: str, *, entire: bool = True) -> int:
    """Return the unit, in microseconds, to which an SQL expression rounds a time, judged by its text; 1 if it does not.

    :param text: the expression
    :param entire: whether a conversion to an integer number of seconds since 1970 counts as rounding to seconds
    """
    granularity = MICROSECONDS_A_DAY if _ROUNDING.search(text) else 1
    for unit in _TRUNCATED.findall(text):
        granularity = max(granularity, _UNITS.get(unit.lower(), MICROSECONDS_A_DAY))
    for digits in _PRECISION.findall(text):
        granularity = max(granularity, 10 ** (6 - int(digits)))
    epoch = _EPOCH.search(text)
    if entire and epoch and _TO_INTEGER.search(text, epoch.end()) and not _IN_MICROSECONDS.search(text):
        granularity = max(granularity, _SECOND)
    return granularity


def _is_default_coarse(fetch: Fetch, text: str, kind: CursorKind, own: int) -> bool:
    """Return whether a default rounds more than its column, judged by up to four evaluations on the server.

    After each evaluation, the function sleeps for a little longer than the column's resolution. If the server cannot
    evaluate the default, its text decides.

    :param fetch: runs a query on the source database and returns its rows
    :param text: SQL expression of the default
    :param kind: the cursor's type
    :param own: the column's resolution in microseconds
    """
    samples: list[int] = []
    try:
        for _ in range(_SAMPLES):
            value = fetch(time_limited(f"SELECT {position_sql(kind, f'({text})::{kind}')}"), [])[0][0]
            samples.append(int(value or 0))
            if not _are_coarser(samples, own):
                return False
            time.sleep(1.1 * own / 1_000_000)
    except Exception as error:
        if sqlstate_of(error) is None:  # the connection failed, not the expression
            raise
        return _granularity(text) > own
    return True


def _are_coarser(samples: Sequence[int], own: int) -> bool:
    return any(
        all(value % granularity == 0 for value in samples) for granularity in _GRANULARITIES if granularity > own
    )
