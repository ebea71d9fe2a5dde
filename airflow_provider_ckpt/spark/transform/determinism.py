"""Refuse SQL expressions that are nondeterministic, or that need other records than their own.

The check wraps the expressions in a higher-order function that is the argument of an aggregate: Spark's analyser
refuses both kinds of expressions there. This works in any session, and one analysis covers all expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.spark.sql import enclosed
from airflow_provider_ckpt.spark.transform.projection import analysis_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDS_OTHER_RECORDS = (
    "needs other records than its own",
    "Leave windows, aggregates and subqueries to a query on the target.",
)
_VARYING = (
    "is nondeterministic",
    "A record that is read again must give the same result; take such values from the source.",
)
_NONDETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
_QUOTED = re.compile(r"'(?:[^'\\]++|\\.?+)*+(?:'|\Z)|\"(?:[^\"\\]++|\\.?+)*+(?:\"|\Z)|`[^`]*+(?:`|\Z)", re.DOTALL)
_TIME_WINDOW = re.compile(r"\b(?:window|session_window|window_time)\s*\(", re.IGNORECASE)
"""Regular expression for functions of time windows. Spark turns such a function into a filter and into several rows for
each row, wherever it is used."""


_CALLED = (
    "now|curdate|current_date|current_time|current_timestamp|localtimestamp|user|current_user|session_user"
    "|current_catalog|current_database|current_schema|current_path|version|getdatabase"
)
_CALL = re.compile(rf"\b(?:{_CALLED})\s*+\(|\bunix_timestamp\s*+\(\s*+\)", re.IGNORECASE)
_WITHOUT_PARENTHESES = re.compile(
    r"(\bas\s++)?+(?<![\w.])(current_date|current_time|current_timestamp|localtimestamp|user|current_user|session_user"
    r"|current_catalog|current_database|current_schema|current_path)(?![\w.(])",
    re.IGNORECASE,
)
_QUOTED_CALL = re.compile(rf"`({_CALLED})`(?=\s*+\()", re.IGNORECASE)
_COMMENT = r"--[^\r\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z)"
_OPAQUE = re.compile(f"{_COMMENT}|{_QUOTED.pattern}", re.DOTALL)
_MOMENT = re.compile(r"\s*+(now|today|tomorrow|yesterday)(?:\s.*)?", re.IGNORECASE | re.DOTALL)
_RELATIVE = re.compile(r"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*+r?'\w++'", re.IGNORECASE)
"""Regular expression for literals that depend on the current day, such as ``DATE 'today'``."""


def varying_part(expression: str, columns: Iterable[str]) -> str | None:
    """Return the part of an expression that depends on time or session, such as ``now()``; None if there is none.

    Spark treats such functions as constants, so its analyser does not refuse them. But each run or each wave gets
    another value.

    :param expression: SQL text of the expression
    :param columns: names of the columns that the expression may use; a column takes precedence over a function that is
        called without parentheses
    """
    without_literals = _OPAQUE.sub(_without_content, _QUOTED_CALL.sub(r"\1", expression))
    relative = _RELATIVE.search(without_literals)
    if relative:
        return relative[0]
    called = _CALL.search(without_literals)
    if called:
        return called[0].rstrip("( )") + "()"
    if "->" in without_literals:  # the name of such a function may be a lambda's variable here
        return None
    known = {name.lower() for name in columns}
    found = _WITHOUT_PARENTHESES.findall(without_literals)
    return next((word for alias, word in found if not alias and word.lower() not in known), None)


def _without_content(found: re.Match[str]) -> str:
    """Return the text that replaces a quoted text or a comment before :func:`varying_part` searches for function calls.

    A quoted text becomes ``''``, or just its first word if that is a word such as ``today``; a comment becomes a space.

    :param found: match of the quoted text or comment
    """
    if found[0][0] not in "'\"`":
        return " "
    moment = _MOMENT.fullmatch(found[0][1:-1]) if found[0][0] != "`" else None
    return f"'{moment[1]}'" if moment else "''"


def all_deterministic(frame: DataFrame, expressions: Iterable[str]) -> bool:
    """Return whether all expressions are valid, deterministic, and use no record but their own.

    Each must be a whole expression by itself, since a text such as ``a) OR (b`` is valid only between parentheses. If
    the result is False, :func:`why_refused` gives the reason for a single expression.

    :param frame: data frame whose columns the expressions use
    :param expressions: SQL texts of the expressions
    """
    expressions = list(expressions)
    if any(_uses_time_window(expression) for expression in expressions):
        return False
    try:
        alone = frame.selectExpr(*expressions)
        alone.schema  # noqa: B018  # makes a Connect session analyse the expressions
        _analyse(frame, expressions)
    except analysis_errors():
        return False
    return True


def why_refused(frame: DataFrame, expression: str) -> tuple[str, str] | None:
    """Return the reason why a transform cannot contain an expression, and a hint; None if it can.

    The reason is a part of an error message, such as ``is nondeterministic``.

    :param frame: data frame whose columns the expression uses
    :param expression: SQL text of an expression that Spark can parse and analyse by itself
    """
    from pyspark.errors import AnalysisException

    if _uses_time_window(expression):
        return _NEEDS_OTHER_RECORDS
    try:
        _analyse(frame, [expression])
    except AnalysisException as error:
        return _VARYING if error.getCondition() == _NONDETERMINISTIC else _NEEDS_OTHER_RECORDS
    return None


def _analyse(frame: DataFrame, expressions: list[str]) -> None:
    """Have Spark analyse expressions inside a lambda, where it refuses those that a transform cannot contain.

    :param frame: data frame with the columns that the expressions name
    :param expressions: SQL expressions of the transform
    :raises PySparkException: if Spark refuses an expression, such as an aggregate or a window function
    """
    values = ", ".join(f"isnull({enclosed(expression)})" for expression in expressions)
    counted = frame.selectExpr(f"count(transform(array(0), __unused -> struct({values})))")
    counted.schema  # noqa: B018  # makes a Connect session analyse the expressions


def _uses_time_window(expression: str) -> bool:
    """Return whether an expression calls a function of time windows, such as ``window``."""
    return _TIME_WINDOW.search(_QUOTED.sub("''", expression)) is not None
