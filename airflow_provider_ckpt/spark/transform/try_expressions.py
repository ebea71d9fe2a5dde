"""Evaluate expressions under try, so that an expression that raises an error for one record affects no other record.

Spark can evaluate any expression under try, but SQL has no syntax for that. A classic session uses Spark's own class
for it, and evaluates each expression once. A Connect session takes SQL only: it evaluates each expression twice, first
inside a SQL function that turns errors into null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.spark.sql import enclosed, quote
from airflow_provider_ckpt.spark.transform.projection import config_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_provider_ckpt.config.pipeline import Pipeline

VALUE = "value"
"""Name of the only field of the struct that each column of :func:`try_columns` is: the value of the expression."""


def try_columns(frame: DataFrame, expressions: Mapping[str, tuple[str, str]], pipeline: Pipeline) -> list[str | Column]:
    """Return columns that evaluate expressions under try, each for the records that meet its condition.

    Each expression is wrapped in a struct behind its condition. Spark moves try into the branches of a ``CASE``
    directly below it, so that conditions inside the expression would raise errors; it does not move try into a struct.

    :param frame: data frame on which the expressions are evaluated
    :param expressions: by column name, SQL of the condition and of the expression. A condition never raises an error,
        is never null, and may use columns that come before. It also keeps Spark from evaluating common parts of
        expressions in advance, outside of try
    :param pipeline: the pipeline
    :return: columns to select from ``frame``. Each is a struct of its :data:`VALUE`, null where the expression raises
        an error or its condition is not met
    :raises ConfigError: if Spark cannot parse an expression
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    structs = {name: f"named_struct('{VALUE}', {enclosed(e)})" for name, (_, e) in expressions.items()}
    if isinstance(frame, ClassicFrame):
        with config_errors(pipeline):
            return _under_try(
                frame, {name: f"CASE WHEN {when} THEN {structs[name]} END" for name, (when, _) in expressions.items()}
            )
    return [
        f"CASE WHEN NOT ({condition}) THEN NULL WHEN NOT ({_raises(e)}) THEN {structs[name]} END AS {quote(name)}"
        for name, (condition, e) in expressions.items()
    ]


def _under_try(frame: DataFrame, expressions: Mapping[str, str]) -> list[str | Column]:
    """Return columns that evaluate expressions under try, by Spark's own class, which only a classic session has."""
    from pyspark.sql.classic.column import Column

    session: Any = frame.sparkSession  # PySpark has no public access to Spark's expressions
    parser, spark = session._jsparkSession.sessionState().sqlParser(), session._jvm.org.apache.spark.sql
    try_eval, as_column = spark.catalyst.expressions.TryEval, spark.classic.ExpressionUtils.column
    return [
        Column(as_column(try_eval(parser.parseExpression(expression))).alias(name))
        for name, expression in expressions.items()
    ]


def _raises(expression: str) -> str:
    """Return a SQL condition: evaluating an expression raises an error. The condition itself never raises an error.

    ``try_add`` with a date returns null if its number raises an error. The expression is an array's element and the
    number is the array's size, because Spark leaves out what it sees no use for, such as a null test of something that
    is never null, and an expression that is not evaluated does not raise an error.
    """
    return f"try_add(DATE'1970-01-01', size(array({enclosed(expression)}))) IS NULL"
