"""One step of the transform: a projection that Spark analyses at once, so that what it cannot use is told by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError, DslParseError, InvalidFilterError, InvalidTransformError
from airflow_provider_ckpt.spark.sql import first_line, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from airflow_provider_ckpt.config.pipeline import Pipeline


def project(
    frame: DataFrame,
    expressions: Sequence[str | Column],
    pipeline: Pipeline,
    key: str = "transform",
    *,
    analyse: bool = False,
) -> DataFrame:
    """Some columns made of those of ``frame``, and of those that come before.

    :param expressions: SQL, or columns of a classic session
    :param key: the pipeline's, for the error
    :param analyse: find out now whether Spark can; a Connect session does so only when it must
    :raises ConfigError: if Spark cannot make them
    """
    with refusals(pipeline, key):
        of_sql = [expression for expression in expressions if isinstance(expression, str)]
        if len(of_sql) == len(expressions):
            projected = frame.selectExpr(*of_sql)
        else:
            from pyspark.sql import functions as sf

            projected = frame.select(*(sf.expr(e) if isinstance(e, str) else e for e in expressions))
        if analyse:
            projected.schema  # noqa: B018  # this is what makes it
    return projected


@contextmanager
def refusals(pipeline: Pipeline, key: str = "transform") -> Iterator[None]:
    """Around what has Spark analyse an expression: what it cannot use comes out as an error that names the key.

    :raises ConfigError: if Spark cannot use it
    """
    from pyspark.errors import AnalysisException, ParseException, PySparkAssertionError, PySparkException
    from pyspark.errors.exceptions.connect import SparkConnectException

    try:
        yield
    except PySparkException as error:
        of_server = isinstance(error, SparkConnectException | PySparkAssertionError)
        if of_server and not isinstance(error, AnalysisException):
            raise  # it says nothing of the expression
        kind = DslParseError if isinstance(error, ParseException) else unusable(key)
        raise kind(
            f"{key} cannot be used: {first_line(error)}",
            pipeline=pipeline.name,
            hint="Correct the expression; the columns it may use are those of the source or of transform.schema.",
        ) from error


def unusable(key: str) -> type[ConfigError]:
    """The error of an expression that parses and cannot be used."""
    return InvalidFilterError if key == "transform.where" else InvalidTransformError


def quoted(names: Iterable[str]) -> list[str]:
    """Columns' names as SQL identifiers."""
    return [quote(name) for name in names]


def parse_schema(spark: SparkSession, ddl: str, pipeline: str, key: str = "transform.schema") -> StructType:
    """The columns of a schema in Spark's DDL.

    :param spark: any session
    :param key: whose value it is, for messages
    :raises ConfigError: if it does not parse
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        parsed = _parsed(spark, ddl)
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
def _parsed(spark: SparkSession, ddl: str) -> DataType:
    """What a session makes of a text in DDL; of a Connect session this is a question to its server."""
    from pyspark.sql.types import DataType

    parse: Callable[[str], DataType] = getattr(spark, "_parse_ddl", DataType.fromDDL)
    return parse(ddl)
