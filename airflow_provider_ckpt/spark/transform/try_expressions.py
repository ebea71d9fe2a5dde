"""Expressions that are evaluated under try, so that a record for which one raises costs no other record anything.

Spark evaluates any expression under try, but has no name in SQL for that. Where the session is in this process, Spark's
own class for it is used, and each expression is evaluated once. A Connect session takes SQL alone: there each is
evaluated twice, first behind a guard for which Spark does have a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.spark.sql import enclosed, quote
from airflow_provider_ckpt.spark.transform.projection import refusals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_provider_ckpt.config.pipeline import Pipeline

VALUE = "value"
"""Field of an attempt's column: what the expression gave."""


def attempts(frame: DataFrame, expressions: Mapping[str, tuple[str, str]], pipeline: Pipeline) -> list[str | Column]:
    """Columns that try some expressions, each of the records for which its condition holds.

    What is tried is a struct of the expression, behind the condition: Spark moves try into the branches of a ``CASE``
    that stands right under it, so that an expression's own conditions would raise, and takes nothing out of a struct.

    :param frame: what the expressions are to be evaluated on
    :param expressions: by the name of its column, SQL of the condition and of the expression. A condition never raises
        and is never null, and may name columns that come before. It also keeps Spark from evaluating ahead of them all,
        and so outside of try, what expressions have in common
    :returns: to be projected on ``frame``. Each is a struct of its :data:`VALUE`; null where evaluating it raises, and
        where its condition does not hold
    :raises ConfigError: if Spark cannot parse an expression
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    structs = {name: f"named_struct('{VALUE}', {enclosed(e)})" for name, (_, e) in expressions.items()}
    if isinstance(frame, ClassicDataFrame):
        with refusals(pipeline):
            return _under_try(
                frame, {name: f"CASE WHEN {when} THEN {structs[name]} END" for name, (when, _) in expressions.items()}
            )
    return [
        f"CASE WHEN NOT ({condition}) THEN NULL WHEN NOT ({_raises(e)}) THEN {structs[name]} END AS {quote(name)}"
        for name, (condition, e) in expressions.items()
    ]


def _under_try(frame: DataFrame, expressions: Mapping[str, str]) -> list[str | Column]:
    """Columns of expressions under try, by name."""
    from pyspark.sql.classic.column import Column

    session: Any = frame.sparkSession  # PySpark has no other way to Spark's expressions
    parser, spark = session._jsparkSession.sessionState().sqlParser(), session._jvm.org.apache.spark.sql
    try_eval, as_column = spark.catalyst.expressions.TryEval, spark.classic.ExpressionUtils.column
    return [
        Column(as_column(try_eval(parser.parseExpression(expression))).alias(name))
        for name, expression in expressions.items()
    ]


def _raises(expression: str) -> str:
    """SQL that is true where evaluating an expression raises, and never raises itself.

    A number added to a date is evaluated under try. It is the size of an array: Spark may leave out what it sees no use
    for, as it does with a test for null of what cannot be null, and an expression that is not evaluated does not raise.
    """
    return f"try_add(DATE'1970-01-01', size(array({enclosed(expression)}))) IS NULL"
