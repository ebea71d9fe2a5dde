"""Helpers for Spark SQL text: identifiers, literals, and expressions that cannot raise an error."""

from __future__ import annotations

import logging
import re

NEVER_RAISING = ("upper", "lower", "trim", "ltrim", "rtrim", "length")
"""Functions that raise an error for no value of any type that Spark lets them take."""

_NAME = "([A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)"
_SAFE = re.compile(rf"\s*(?:{_NAME}|(?:{'|'.join(NEVER_RAISING)})\s*\(\s*{_NAME}\s*\))\s*", re.IGNORECASE)
_FUNCTIONS_WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_timestamp", "current_user", "localtimestamp", "user", "session_user"}
)
"""Names that Spark takes for functions although no parentheses follow."""


def cannot_raise(expression: str) -> bool:
    """Return whether an expression is a column name alone, or a function of :data:`NEVER_RAISING` applied to one."""
    found = _SAFE.fullmatch(expression)
    return found is not None and (found[1] or found[2]).lower() not in _FUNCTIONS_WITHOUT_PARENTHESES


def is_column_name(expression: str) -> bool:
    """Return whether an expression is a column name alone."""
    found = _SAFE.fullmatch(expression)
    return found is not None and (found[1] or "").lower() not in {"", *_FUNCTIONS_WITHOUT_PARENTHESES}


def quote(name: str) -> str:
    """Return a column name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def enclosed(expression: str) -> str:
    """A whole expression as a part of others, in parentheses; a comment at its end does not reach beyond them."""
    return f"({expression}\n)"


def literal(text: str) -> str:
    """Return a text as a SQL literal. ``${x}`` is escaped, because Spark would replace it by a variable."""
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"


_JVM_ERROR_PREFIX = "An error occurred while calling "
"""Prefix of a first line that says nothing, in the text of JVM errors for which PySpark has no class."""


def first_line(error: BaseException) -> str:
    """Return the first informative line of an error's text; in Spark's errors it has the error class and the reason."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(_JVM_ERROR_PREFIX)]
    return lines[0].strip(": ") if lines else type(error).__name__


def silence_client_logs() -> None:
    """Stop Spark's client from logging each error with the server's stack trace; callers report errors themselves."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
