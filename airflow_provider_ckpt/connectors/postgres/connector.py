"""Connector of PostgreSQL tables."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from airflow_provider_ckpt.config.connector import (
    Connector,
    DeadLetterStoreType,
    OutOfRangeTimes,
    SinkType,
    SourceType,
)
from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import ColumnNames, RequiredText
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection
from airflow_provider_ckpt.connectors.postgres.column_types import FIRST_DAY

_HERE = "airflow_provider_ckpt.connectors.postgres"


class PostgresSourceSection(SourceSection):
    """Table to read.

    :param connection: Airflow connection id of the database
    :param table: ``schema.table`` or ``table``
    :param cursor: the column that orders rows and only grows: an integer, a timestamp or a date
    :param key: the columns that identify a record, if any; they distinguish rows with the same cursor
    :param columns: the columns to read; empty for all
    :param close_wait: how long planning waits for running transactions to end
    :param late_rows: reaction to rows that appear, or will appear, below the checkpoint: ``refuse`` fails the run;
        ``recover`` only warns, for users who run ``airflow ckpt recover``
    """

    place_key: ClassVar[str] = "table"
    ordered_by_cursor: ClassVar[bool] = True

    connection: RequiredText
    table: RequiredText
    cursor: RequiredText
    key: ColumnNames = ()
    columns: ColumnNames = ()
    close_wait: Duration = timedelta(seconds=30)
    late_rows: Literal["refuse", "recover"] = "refuse"


class PostgresSinkSection(SinkSection):
    """Table to write to.

    :param connection: Airflow connection id of the database
    :param table: ``schema.table`` or ``table``
    :param mode: ``append``, or ``upsert`` by ``key``
    :param key: the target's key columns, for ``upsert``
    :param rows_may_differ: whether the target may take more or fewer rows than are sent, because a trigger, a rule or a
        policy of the target adds or removes some
    :param may_be_emptied: whether the target may be emptied on purpose, so that missing rows are no loss
    """

    place_key: ClassVar[str] = "table"

    connection: RequiredText
    table: RequiredText
    mode: Literal["append", "upsert"] = "append"
    key: ColumnNames = ()
    rows_may_differ: bool = False
    may_be_emptied: bool = False

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

    @property
    def takes_raw_rows(self) -> bool:
        """True if all rows are appended as they are sent; see :attr:`SinkSection.takes_raw_rows`."""
        return not self.upserts and not self.rows_may_differ


CONNECTOR = Connector(
    source=SourceType(
        section=PostgresSourceSection,
        source=f"{_HERE}.source:PostgresSource",
        reader=f"{_HERE}.reader:PostgresReader",
        out_of_range_times=OutOfRangeTimes(
            FIRST_DAY,
            "is infinity or after the year 294246, which can only be delivered to a postgres sink, and only from a "
            "column that no expression uses; cast it to text in a view",
            stored_by_own_sink=True,
        ),
    ),
    sink=SinkType(
        section=PostgresSinkSection,
        sink=f"{_HERE}.sink:PostgresSink",
        writer=f"{_HERE}.writer:PostgresWriter",
        dead_letter_place=f"{_HERE}.names:dead_letter_place",
    ),
    dead_letter_store=DeadLetterStoreType(
        store=f"{_HERE}.dead_letter_store:PostgresDeadLetterStore",
        place=f"{_HERE}.names:dead_letter_place",
        keys=("connection", "table"),
        needs_connection=True,
    ),
    raw_copy=f"{_HERE}.raw_copy:PostgresRawCopy",
    dataset=f"{_HERE}.names:dataset",
    preload=("adbc_driver_postgresql.dbapi", "psycopg2.extras"),
    preload_before_fork=(f"{_HERE}.sink", f"{_HERE}.source"),
)
