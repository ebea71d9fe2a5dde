"""Write Spark SQL text: identifiers, literals, and expressions; recognise expressions that cannot raise an error."""

from __future__ import annotations

import logging
import re

NEVER_RAISING = ("upper", "lower", "trim", "ltrim", "rtrim", "length")
"""Spark SQL functions that raise no error for any argument."""

_NAME = "([A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)"
_SAFE = re.compile(rf"\s*(?:{_NAME}|(?:{'|'.join(NEVER_RAISING)})\s*\(\s*{_NAME}\s*\))\s*", re.IGNORECASE)
_FUNCTIONS_WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_timestamp", "current_user", "localtimestamp", "user", "session_user"}
)
"""Names that Spark SQL parses as function calls although no parentheses follow."""


def cannot_raise(expression: str) -> bool:
    """Return whether a SQL expression never raises an error.

    That is certain only for a column, and for a :data:`NEVER_RAISING` function of a column; for others the result is
    False.

    :param expression: SQL text of the expression
    """
    found = _SAFE.fullmatch(expression)
    return found is not None and (found[1] or found[2]).lower() not in _FUNCTIONS_WITHOUT_PARENTHESES


def is_column_name(expression: str) -> bool:
    """Return whether a SQL expression consists of the name of a column only."""
    found = _SAFE.fullmatch(expression)
    return found is not None and (found[1] or "").lower() not in {"", *_FUNCTIONS_WITHOUT_PARENTHESES}


def quote(name: str) -> str:
    """Return a column name as a SQL identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def enclosed(expression: str) -> str:
    """Return a SQL expression in parentheses, so that it can be part of another one.

    The closing parenthesis is on a line of its own, outside a comment with which the expression may end.
    """
    return f"({expression}\n)"


def literal(text: str) -> str:
    """Return a text as a SQL string literal. ``${x}`` is escaped, because Spark would substitute a variable for it."""
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"


_JVM_ERROR_PREFIX = "An error occurred while calling "
"""Prefix of an uninformative first line in the text of JVM errors for which PySpark has no class."""


def first_line(error: BaseException) -> str:
    """Return the first informative line of an error's text; in Spark's errors it has error class and reason."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(_JVM_ERROR_PREFIX)]
    return lines[0].strip(": ") if lines else type(error).__name__


def silence_client_logs() -> None:
    """Stop PySpark from logging each error with Spark's stack trace; the callers of Spark report errors themselves."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
