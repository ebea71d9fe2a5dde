"""Which expressions a transform can bear: those of one record alone, that give the same whenever they are evaluated.

Spark's analyser knows: it lets no other stand in the argument of an aggregate, inside a function of higher order. That
holds on any session, and all expressions are asked about at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OTHERS = "needs other records than its own", "Leave windows, aggregates and subqueries to a query on the target."
_VARYING = (
    "is nondeterministic",
    "A record that is read again must give the same result; take such values from the source.",
)
_NONDETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
_QUOTED = re.compile(r"'(?:[^'\\]++|\\.)*+(?:'|\Z)|\"(?:[^\"\\]++|\\.)*+(?:\"|\Z)|`[^`]*+(?:`|\Z)", re.DOTALL)
_TIME_WINDOW = re.compile(r"\b(?:window|session_window|window_time)\s*\(", re.IGNORECASE)
"""What Spark makes a filter of, and several rows of one, wherever it stands."""


def fit(frame: DataFrame, expressions: Iterable[str]) -> bool:
    """Whether all of some expressions can be used; if not, ask :func:`problem` about each.

    :param frame: what they are evaluated on
    """
    from pyspark.errors import PySparkException

    expressions = list(expressions)
    if any(_of_time_window(expression) for expression in expressions):
        return False
    try:
        _analyse(frame, expressions)
    except PySparkException:
        return False
    return True


def problem(frame: DataFrame, expression: str) -> tuple[str, str] | None:
    """Why an expression that Spark can evaluate cannot stand in a transform, and what to do; None if it can."""
    from pyspark.errors import AnalysisException

    if _of_time_window(expression):
        return _OTHERS
    try:
        _analyse(frame, [expression])
    except AnalysisException as error:
        return _VARYING if error.getCondition() == _NONDETERMINISTIC else _OTHERS
    return None


def _analyse(frame: DataFrame, expressions: list[str]) -> None:
    values = ", ".join(f"isnull(({expression}))" for expression in expressions)
    counted = frame.selectExpr(f"count(transform(array(0), __unused -> struct({values})))")
    counted.schema  # noqa: B018  # a Connect session analyses when it must


def _of_time_window(expression: str) -> bool:
    return _TIME_WINDOW.search(_QUOTED.sub("''", expression)) is not None
