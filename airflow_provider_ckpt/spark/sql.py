"""Small pieces of Spark SQL: names, texts, and which expressions may raise."""

from __future__ import annotations

import logging
import re

HARMLESS = ("upper", "lower", "trim", "ltrim", "rtrim", "length")
"""Functions that raise for no value of any type that Spark lets them take."""

_NAME = "([A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)"
_SAFE = re.compile(rf"\s*(?:{_NAME}|(?:{'|'.join(HARMLESS)})\s*\(\s*{_NAME}\s*\))\s*", re.IGNORECASE)
_VALUES = frozenset({"current_date", "current_timestamp", "current_user", "localtimestamp", "user", "session_user"})
"""Names that Spark takes for functions."""


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


def enclosed(expression: str) -> str:
    """A whole expression as a part of others, in parentheses; a comment at its end does not reach beyond them."""
    return f"({expression}\n)"


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
