"""Connector of SQL databases by SQLAlchemy: MySQL, MariaDB, SQLite, and others whose dialect is installed."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from airflow_provider_ckpt.config.connector import Connector, OutOfRangeTimes, SinkType, SourceType
from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import ColumnNames, RequiredText
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection

_HERE = "airflow_provider_ckpt.connectors.sql"

FIRST_DAY = -719_162
"""0001-01-01 in days since 1970-01-01, the first day of a date that is not zero or incomplete."""


class SqlSourceSection(SourceSection):
    """Table to read.

    :param connection: Airflow connection id of the database
    :param table: ``schema.table`` or ``table``; in MySQL and MariaDB, the schema is a database
    :param cursor: the column that orders rows and only grows: an integer; in MySQL and MariaDB also a date or time
    :param columns: the columns to read; empty for all
    :param close_wait: how long planning waits for running transactions to end; where they cannot be seen, how long a
        bound must be known before rows below it are read
    :param late_rows: reaction to rows that will appear below the checkpoint: ``refuse`` fails the run; ``recover`` only
        warns, for users who run ``airflow ckpt recover``
    """

    place_key: ClassVar[str] = "table"
    ordered_by_cursor: ClassVar[bool] = True

    connection: RequiredText
    table: RequiredText
    cursor: RequiredText
    columns: ColumnNames = ()
    close_wait: Duration = timedelta(seconds=30)
    late_rows: Literal["refuse", "recover"] = "refuse"


class SqlSinkSection(SinkSection):
    """Table to write to.

    :param connection: Airflow connection id of the database
    :param table: ``schema.table`` or ``table``; in MySQL and MariaDB, the schema is a database
    :param mode: ``append``, or ``upsert`` by ``key``
    :param key: the target's key columns, for ``upsert``
    :param rows_may_differ: whether the target may take more or fewer rows than are sent, because a trigger adds or
        removes some
    :param may_be_emptied: whether rows of the target may be removed on purpose, so that missing rows are no loss
    :param untested_dialect: whether ``delivery: exactly_once`` is allowed with a dialect that the conformance suite has
        not been run with
    """

    place_key: ClassVar[str] = "table"

    connection: RequiredText
    table: RequiredText
    mode: Literal["append", "upsert"] = "append"
    key: ColumnNames = ()
    rows_may_differ: bool = False
    may_be_emptied: bool = False
    untested_dialect: bool = False

    @model_validator(mode="after")
    def _mode_and_key(self) -> Self:
        if self.upserts and not self.key:
            raise ValueError("mode: upsert needs key, the columns that identify a row")
        if self.key and not self.upserts:
            raise ValueError(
                "key requires mode: upsert, since append never replaces rows; write that, or leave key out"
            )
        return self

    @property
    def upserts(self) -> bool:
        """True with ``mode: upsert``; see :attr:`SinkSection.upserts`."""
        return self.mode == "upsert"

    @property
    def may_store_other_rows(self) -> bool:
        """True with ``rows_may_differ``; see :attr:`SinkSection.may_store_other_rows`."""
        return self.rows_may_differ

    @property
    def may_lose_rows(self) -> bool:
        """True with ``may_be_emptied``; see :attr:`SinkSection.may_lose_rows`."""
        return self.may_be_emptied


CONNECTOR = Connector(
    source=SourceType(
        section=SqlSourceSection,
        source=f"{_HERE}.source:SqlSource",
        reader=f"{_HERE}.reader:SqlReader",
        out_of_range_times=OutOfRangeTimes(
            FIRST_DAY,
            "is a zero or incomplete date, such as 0000-00-00, which is no date in Spark; in a view, turn it into NULL "
            "with nullif() or cast it to text",
        ),
    ),
    sink=SinkType(
        section=SqlSinkSection,
        sink=f"{_HERE}.sink:SqlSink",
        writer=f"{_HERE}.writer:SqlWriter",
        dead_letter_place=f"{_HERE}.names:dead_letter_place",
    ),
    dataset=f"{_HERE}.names:dataset",
    preload=("sqlalchemy",),
)
