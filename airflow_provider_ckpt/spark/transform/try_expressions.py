"""Evaluate SQL expressions "under try": if one raises an error for a record, it yields null for that record only.

Spark can evaluate any expression under try, but SQL has no syntax for that. A classic session uses Spark's internal
class for it, and evaluates each expression once. A Connect session takes SQL only: it evaluates each expression twice,
first inside a SQL function that turns errors into null.
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
"""Name of the only field of the structs that the columns of :func:`try_columns` hold: the value of the expression."""


def try_columns(frame: DataFrame, expressions: Mapping[str, tuple[str, str]], pipeline: Pipeline) -> list[str | Column]:
    """Return columns that evaluate expressions under try, each only for the records that meet its condition.

    Each column has the form ``CASE WHEN condition THEN struct(expression) END``. The struct is needed because Spark
    moves try from a ``CASE`` into its branches, so that conditions inside the expression would raise errors; it does
    not move try into a struct.

    :param frame: data frame whose columns the expressions use
    :param expressions: by column name, SQL texts of the condition and of the expression. A condition must not raise an
        error or yield null, and may use earlier columns. It also keeps Spark from evaluating common parts of
        expressions in advance, outside of try
    :param pipeline: the pipeline's declaration, for the error message
    :return: columns to select from ``frame``. Each holds a struct with the field :data:`VALUE`, or null if the
        expression raises an error or the condition is not met
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
    """Return columns that evaluate expressions with Spark's internal class for try, which only a classic session has.

    :param frame: data frame whose columns the expressions use
    :param expressions: SQL text of each expression, by column name
    """
    from pyspark.sql.classic.column import Column

    session: Any = frame.sparkSession  # PySpark has no public access to Spark's expressions
    parser, spark = session._jsparkSession.sessionState().sqlParser(), session._jvm.org.apache.spark.sql
    try_eval, as_column = spark.catalyst.expressions.TryEval, spark.classic.ExpressionUtils.column
    return [
        Column(as_column(try_eval(parser.parseExpression(expression))).alias(name))
        for name, expression in expressions.items()
    ]


def _raises(expression: str) -> str:
    """Return a SQL condition that is true if an expression raises an error. The condition itself never raises one.

    ``try_add`` with a date returns null if its second argument raises an error. This argument is the size of an array
    with the expression as its element. Something simpler, such as a null test of a value that is never null, would be
    optimized away, and an expression that is not evaluated raises no error.

    :param expression: SQL text of the expression
    """
    return f"try_add(DATE'1970-01-01', size(array({enclosed(expression)}))) IS NULL"
