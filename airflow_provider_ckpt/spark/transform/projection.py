"""Project a data frame on SQL expressions, analysed at once, so that an error can name the expression's YAML key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError, DslParseError, InvalidFilterError, InvalidTransformError
from airflow_provider_ckpt.spark.sql import first_line, quote
from airflow_provider_ckpt.spark.versions import grpc_status

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from airflow_provider_ckpt.config.pipeline import Pipeline


_OF_PROCESS = frozenset({"java.lang.IllegalStateException", "java.lang.OutOfMemoryError"})
"""Java exceptions that mean that Spark's process has stopped or has no memory left, and not that an expression is
invalid.
"""

_INTERNAL = "INTERNAL_ERROR"
"""Prefix of the error conditions with which Spark reports an error inside its analyser, such as the error for a lambda
that is not the argument of a function.
"""


def project(
    frame: DataFrame,
    expressions: Sequence[str | Column],
    pipeline: Pipeline,
    key: str = "transform",
    *,
    analyse: bool = False,
) -> DataFrame:
    """Return a data frame with one column for each expression. An expression may use the columns of earlier
    expressions.

    :param frame: data frame whose columns the expressions use
    :param expressions: SQL texts, or columns of a classic session
    :param pipeline: the pipeline's declaration, for the error message
    :param key: configuration key of the expressions, for the error message
    :param analyse: whether a Connect session, too, analyses the expressions at once; a classic session always does
    :raises ConfigError: if Spark cannot use an expression
    """
    with config_errors(pipeline, key):
        of_sql = [expression for expression in expressions if isinstance(expression, str)]
        if len(of_sql) == len(expressions):
            projected = frame.selectExpr(*of_sql)
        else:
            from pyspark.sql import functions as sf

            projected = frame.select(*(sf.expr(e) if isinstance(e, str) else e for e in expressions))
        if analyse:
            projected.schema  # noqa: B018  # makes a Connect session analyse
    return projected


@contextmanager
def config_errors(pipeline: Pipeline, key: str = "transform") -> Iterator[None]:
    """Convert Spark's error for an invalid expression in the ``with`` block to a ConfigError that names the key.

    :param pipeline: the pipeline's declaration, for the error message
    :param key: configuration key of the expression, for the error message
    :raises ConfigError: if Spark cannot use the expression
    """
    from pyspark.errors import ParseException

    try:
        yield
    except analysis_errors() as error:
        if not _of_expression(error):
            raise
        kind = DslParseError if isinstance(error, ParseException) else error_class(key)
        reason = (
            "the Spark Connect server gives no reason; the expression may be nested too deeply"
            if _without_reason(error)
            else first_line(error)
        )
        raise kind(
            f"{key} cannot be used: {reason}",
            pipeline=pipeline.name,
            hint="Correct the expression; the columns it may use are those of the source or of transform.schema.",
        ) from error


def analysis_errors() -> tuple[type[Exception], ...]:
    """Return the exception classes with which PySpark reports that Spark cannot analyse an expression."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError  # the latter is an error for which PySpark has no class


def _of_expression(error: Exception) -> bool:
    """Return whether an exception means that an expression is invalid, not that a session or server is gone."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkAssertionError, PySparkException
    from pyspark.errors.exceptions.connect import SparkConnectException

    if isinstance(error, Py4JJavaError):
        return error.java_exception.getClass().getName() not in _OF_PROCESS
    assert isinstance(error, PySparkException)
    if isinstance(error, AnalysisException) or not isinstance(error, SparkConnectException | PySparkAssertionError):
        return True
    return (error.getCondition() or "").startswith(_INTERNAL) or _without_reason(error)


def _without_reason(error: Exception) -> bool:
    """Return whether a Spark Connect server failed without giving a reason, as after a stack overflow."""
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    if not isinstance(error, SparkConnectGrpcException) or error.getCondition() is not None:
        return False
    return grpc_status(error) == "UNKNOWN" and 'details = ""' in str(error)


def error_class(key: str) -> type[ConfigError]:
    """Return the error class for an expression that Spark can parse but not use.

    It is :class:`InvalidFilterError` for ``transform.where``, and :class:`InvalidTransformError` for any other key.

    :param key: configuration key of the expression, such as ``transform.where``
    """
    return InvalidFilterError if key == "transform.where" else InvalidTransformError


def quoted(names: Iterable[str]) -> list[str]:
    """Return column names as SQL identifiers in backticks."""
    return [quote(name) for name in names]


def parse_schema(spark: SparkSession, ddl: str, pipeline: str, key: str = "transform.schema") -> StructType:
    """Parse a schema in Spark's DDL to a struct type.

    :param spark: any session
    :param ddl: text of the schema, such as ``id bigint, at timestamp``
    :param pipeline: name of the pipeline, for the error message
    :param key: configuration key of the schema, for the error message
    :raises ConfigError: if the text does not parse, or is one type instead of columns
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed = _parse_ddl(spark, ddl)
        if not isinstance(parsed, StructType):
            raise ConfigError(
                f"{key} is one type, not columns: {ddl}",
                pipeline=pipeline,
                hint="Write it as Spark DDL, such as: id bigint, at timestamp.",
            )
    except PySparkException as error:
        raise ConfigError(
            f"{key} does not parse: {first_line(error)}",
            pipeline=pipeline,
            hint="Write it as Spark DDL, such as: id bigint, at timestamp.",
        ) from error
    return parsed


@lru_cache
def _parse_ddl(spark: SparkSession, ddl: str) -> DataType:
    """Parse Spark's DDL to a type; a Connect session sends the text to the server for this.

    :param spark: any session
    :param ddl: text of the schema
    """
    from pyspark.sql.types import DataType

    parse: Callable[[str], DataType] = getattr(spark, "_parse_ddl", DataType.fromDDL)
    return parse(ddl)
