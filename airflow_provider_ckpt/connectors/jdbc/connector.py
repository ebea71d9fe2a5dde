"""Declare the jdbc connector: the keys of its ``source`` section, and the classes that implement the source.

The connector reads a table of any database with a JDBC driver, through Spark.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from airflow_provider_ckpt.config.connector import Connector, SourceType
from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import ColumnNames, RequiredText
from airflow_provider_ckpt.config.source import SourceSection

_HERE = "airflow_provider_ckpt.connectors.jdbc"


def _at_least_one(paths: tuple[str, ...]) -> tuple[str, ...]:
    if not paths:
        raise ValueError("is empty; name the driver's jars")
    return paths


class JdbcSourceSection(SourceSection):
    """Section ``source`` of a pipeline whose table Spark reads with a JDBC driver.

    :param connection: Airflow connection id of the database
    :param table: ``catalog.schema.table``, ``schema.table`` or ``table``
    :param cursor: the column that orders rows and only grows: an integer, a timestamp or a date
    :param columns: the columns to read; empty for all
    :param close_wait: time that must pass after a bound was determined before records below it are read, since JDBC
        does not show whether transactions are still running
    :param jars: paths of the driver's jars on the worker; Spark loads them from the same paths
    """

    place_key: ClassVar[str] = "table"
    ordered_by_cursor: ClassVar[bool] = True
    spark_reader: ClassVar[str | None] = "airflow_provider_ckpt.spark.jdbc"

    connection: RequiredText
    table: RequiredText
    cursor: RequiredText
    columns: ColumnNames = ()
    close_wait: Duration = timedelta(seconds=30)
    jars: Annotated[tuple[str, ...], AfterValidator(_at_least_one)]

    @property
    def spark_jars(self) -> tuple[str, ...]:
        """Paths of the driver's jars, which Spark loads; see :attr:`SourceSection.spark_jars`."""
        return self.jars


CONNECTOR = Connector(
    source=SourceType(
        section=JdbcSourceSection, source=f"{_HERE}.source:JdbcSource", reader=f"{_HERE}.reader:JdbcReader"
    ),
    dataset=f"{_HERE}.names:dataset",
)
