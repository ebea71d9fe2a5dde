"""Expressions that are evaluated under try, so that a record for which one raises costs no other record anything.

Spark evaluates any expression under try, but has no name in SQL for that. Where the session is in this process, Spark's
own class for it is used, and each expression is evaluated once. A Connect session takes SQL alone: there each is
evaluated twice, first behind a guard for which Spark does have a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.spark.projection import project, quoted
from airflow_provider_ckpt.spark.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_provider_ckpt.config.pipeline import Pipeline

VALUE = "value"
"""Field of an attempt's column: what the expression gave."""


def attempt(frame: DataFrame, expressions: Mapping[str, str], condition: str, pipeline: Pipeline) -> DataFrame:
    """Try some expressions, of the records for which a condition holds.

    :param frame: what they are evaluated on
    :param expressions: SQL by the name of the column that it gets
    :param condition: SQL that never raises and is never null. It also keeps Spark from evaluating ahead of them all,
        and so outside of try, what expressions have in common
    :returns: ``frame`` with a column for each expression: a struct of its :data:`VALUE`; null where evaluating it
        raises, and where the condition does not hold
    :raises ConfigError: if Spark cannot use an expression
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    kept = quoted(frame.columns)
    structs = [f"named_struct('{VALUE}', {expression})" for expression in expressions.values()]
    if isinstance(frame, ClassicDataFrame):
        from pyspark.sql import Column
        from pyspark.sql import functions as sf

        tried = _under_try(project(frame, structs, pipeline))
        columns = [sf.when(sf.expr(condition), column) for column in tried]
        return frame.select(*map(sf.expr, kept), *map(Column.alias, columns, expressions))
    cases = [
        f"CASE WHEN NOT ({condition}) THEN NULL WHEN NOT {_raises(expression)} THEN {struct} END AS {quote(name)}"
        for (name, expression), struct in zip(expressions.items(), structs, strict=True)
    ]
    return project(frame, [*kept, *cases], pipeline)


def _under_try(projected: DataFrame) -> list[Column]:
    """The columns of a projection, as analysed, under try."""
    from pyspark.sql.classic.column import Column

    jvm: Any = projected.sparkSession._jvm  # PySpark has no other way to Spark's expressions
    spark = jvm.org.apache.spark.sql
    columns = projected._jdf.queryExecution().analyzed().projectList()
    expressions = [columns.apply(number).child() for number in range(columns.length())]
    under_try = [spark.catalyst.expressions.TryEval(expression) for expression in expressions]
    return [Column(spark.classic.ExpressionUtils.column(expression)) for expression in under_try]


def _raises(expression: str) -> str:
    """SQL that is true where evaluating an expression raises, and never raises itself.

    A number added to a date is evaluated under try. It is the size of an array: Spark may leave out what it sees no use
    for, as it does with a test for null of what cannot be null, and an expression that is not evaluated does not raise.
    """
    return f"(try_add(DATE'1970-01-01', size(array({expression}))) IS NULL)"
