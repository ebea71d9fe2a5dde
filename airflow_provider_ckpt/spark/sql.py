"""Small pieces of Spark SQL: names, texts, and a guard for expressions that may raise."""

from __future__ import annotations

import logging
import re

HARMLESS = ("upper", "lower", "trim", "ltrim", "rtrim", "length")
"""Functions that raise for no value of any type that Spark lets them take."""

_NAME = "([A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)"
_SAFE = re.compile(rf"\s*(?:{_NAME}|(?:{'|'.join(HARMLESS)})\s*\(\s*{_NAME}\s*\))\s*", re.IGNORECASE)
_VALUES = frozenset({"current_date", "current_timestamp", "current_user", "localtimestamp", "user", "session_user"})
"""Names that Spark takes for functions."""

_DAY = "DATE'1970-01-01'"
TRUE = f"date_add({_DAY}, hash(true))"
"""SQL of what :func:`tried` gives where a condition holds."""


def guard(*expressions: str) -> str:
    """SQL that is true where evaluating one of the expressions raises, and never raises itself.

    Their values go into an array of which only the size is asked: Spark may leave out what it sees no use for, as it
    does with a test for null of what cannot be null, and an expression that is not evaluated does not raise.
    """
    values = f"struct({', '.join(expressions)})" if len(expressions) > 1 else expressions[0]
    return f"{_tried(f'size(array({values}))')} IS NULL"


def tried(condition: str) -> str:
    """SQL that equals :data:`TRUE` where a condition holds, and is null where evaluating it raises; it never raises.

    Spark takes no part of a condition out of ``hash``, as it takes a ``CASE`` out of other functions, and with it out
    of what is evaluated under try.
    """
    return _tried(f"hash({condition})")


def _tried(number: str) -> str:
    """SQL that is null where a number raises: added to a date, it is evaluated under try."""
    return f"try_add({_DAY}, {number})"


def aside(condition: str, *, unless: str) -> str:
    """SQL that is true where a condition holds that is seldom looked at, and false where it is null.

    In a lambda it is no part of the method that Spark generates for the step: Java does not compile one of more than
    8,000 bytes, and interpreting it costs every record.

    :param unless: a condition that is never null; where it holds, nothing is looked at
    """
    return f"exists(CASE WHEN {unless} THEN array() ELSE array(0) END, __unused -> coalesce({condition}, false))"


def cannot_raise(expression: str) -> bool:
    """Whether an expression is a column's name and nothing else, or one of :data:`HARMLESS` of one."""
    found = _SAFE.fullmatch(expression)
    return found is not None and (found[1] or found[2]).lower() not in _VALUES


def is_name(expression: str) -> bool:
    """Whether an expression is a column's name and nothing else."""
    found = _SAFE.fullmatch(expression)
    return found is not None and (found[1] or "").lower() not in {"", *_VALUES}


def quote(name: str) -> str:
    """A column's name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a SQL literal; Spark would replace ``${x}`` by a variable."""
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"


_CALLING = "An error occurred while calling "
"""How the text of an error from the JVM begins for which Spark has no Python class; what is wrong comes after it."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, which in Spark's carries the error class and the reason."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(_CALLING)]
    return lines[0].strip(": ") if lines else type(error).__name__


def hush() -> None:
    """Keep Spark's client from logging each error with its server's stack; whoever it is raised to tells of it."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
