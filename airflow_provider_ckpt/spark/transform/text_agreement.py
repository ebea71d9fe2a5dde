"""SQL conditions that are true if a parsed value agrees with its text in the record, by type of the value.

``lossless_parsing.py`` parses a record a second time with the affected fields as text, and applies these conditions.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from airflow_provider_ckpt.spark.sql import literal

Rules = Mapping[str, Callable[[str, str], str]]
"""Functions by Spark type name. Each returns a SQL condition that is true if the parsed value agrees with its text.

The arguments of the function are SQL expressions of the value and of the text. A type whose values parsers never alter
has no entry.
"""

NUMBER_PREFIX = f"number{secrets.randbits(62)}:"
"""Prefix of a JSON number that is parsed as text, which distinguishes the number from a string.

It is random, so that no record contains it.
"""

NUMBER_PREFIX_LENGTH = len(NUMBER_PREFIX)
"""Number of characters by which a JSON number that is parsed as text is longer than in the record."""


def _without_prefix(own: str) -> str:
    """Return SQL that removes the prefix :data:`NUMBER_PREFIX` from a number's text."""
    return f"replace({own}, '{NUMBER_PREFIX}', '')"


def _is_finite(value: str, _: str) -> str:
    """Return a SQL condition that is true if the parsed number is neither infinite nor NaN.

    :param value: SQL expression of the parsed number
    """
    return f"abs({value}) < cast('Infinity' AS double)"


def _is_day(value: str, own: str) -> str:
    """Return a SQL condition that is true if the text states the same day as the parsed date, alone or before a time.

    A cast to date would ignore any text that follows a day and a space or ``T``.

    :param value: SQL expression of the parsed date
    :param own: SQL expression of its text in the record
    """
    alone = f"{own} NOT RLIKE '[T ]'"
    return f"try_cast({own} AS date) = {value} AND ({alone} OR try_cast({own} AS timestamp_ntz) IS NOT NULL)"


def _is_time(value: str, own: str, kind: str = "timestamp") -> str:
    """Return a SQL condition that is true if the text states the parsed timestamp and begins with a year.

    Without the year, a cast would accept a time of day and add today's date.

    :param value: SQL expression of the parsed timestamp
    :param own: SQL expression of its text in the record
    :param kind: Spark SQL type of the timestamp
    """
    year = literal(r"\A\s*+[+-]?+[0-9]{4}")
    return f"{own} RLIKE {year} AND try_cast({own} AS {kind}) = {value}"


def _is_time_without_zone(value: str, own: str) -> str:
    """Return a SQL condition like :func:`_is_time`, for a timestamp without time zone.

    :param value: SQL expression of the parsed timestamp
    :param own: SQL expression of its text in the record
    """
    return _is_time(value, own, "timestamp_ntz")


def _is_time_or_seconds(value: str, own: str) -> str:
    """Return a SQL condition that is true if the text states the parsed timestamp, as a time or in seconds since 1970.

    The parser lets a number of seconds that is too large wrap around.

    :param value: SQL expression of the parsed timestamp
    :param own: SQL expression of its text in the record
    """
    return f"({_is_time(value, own)}) OR try_cast({_without_prefix(own)} AS bigint) = unix_seconds({value})"


def _is_text(value: str, own: str) -> str:
    """Return a SQL condition that is true if the text is equal to the parsed string.

    If the schema has a string where the record has a number, alone or inside an object or array, the parser rewrites
    the number.

    :param value: SQL expression of the parsed string
    :param own: SQL expression of its text in the record
    """
    inside = literal(f'"{NUMBER_PREFIX}([^"]*+)"')
    unmarked = _without_prefix(f"regexp_replace({own}, {inside}, '$1')")
    return f"{unmarked} = {value}"


def _is_finite_variant(_: str, own: str) -> str:
    """Return a SQL condition that is true if no number in a variant's text is infinite as a double.

    A variant stores a number that is too long for a decimal as the nearest double. A JSON null is a variant value
    without text; the condition is true for it.

    :param own: SQL expression of the variant's text in the record
    """
    numbers = f"regexp_extract_all({own}, {literal(f'{NUMBER_PREFIX}([0-9.eE+-]++)')}, 1)"
    infinite = f"exists({numbers}, number -> abs(try_cast(number AS double)) = cast('Infinity' AS double))"
    return f"NOT coalesce({infinite}, false)"


def _is_number(value: str, own: str) -> str:
    """Return a SQL condition that is true if the text is a finite number in decimal notation, an infinity or NaN.

    It is false for hexadecimal numbers, type suffixes and surrounding spaces, which Java's parser accepts too.

    :param value: SQL expression of the parsed number
    :param own: SQL expression of its text in the record
    """
    number = literal(r"\A[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+\z")
    no_number = literal(r"\A(?:[+-]?+Inf(?:inity)?+|NaN)\z")
    return f"({own} RLIKE {number} AND {_is_finite(value, own)}) OR {own} RLIKE {no_number}"


JSON_RULES: Rules = {
    "byte": lambda value, own: f"try_cast({_without_prefix(own)} AS int) = {value}",
    "decimal": lambda _, own: f"startswith({own}, '{NUMBER_PREFIX}')",
    "double": _is_finite,
    "float": _is_finite,
    "date": _is_day,
    "timestamp": _is_time_or_seconds,
    "timestamp_ntz": _is_time_without_zone,
    "string": _is_text,
    "variant": _is_finite_variant,
}
"""Rules for the values of JSON records."""

CSV_RULES: Rules = {
    "decimal": lambda _, own: f"NOT contains({own}, ',')",
    "double": _is_number,
    "float": _is_number,
    "date": _is_day,
    "timestamp": _is_time,
    "timestamp_ntz": _is_time_without_zone,
}
"""Rules for the values of CSV records."""
