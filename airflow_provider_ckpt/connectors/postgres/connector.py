"""Declare the postgres connector: the keys of its ``source`` and ``sink`` sections, and the classes that do the work.

The module is light: the classes are named by their paths, and imported when they are needed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Literal

from pydantic import Field

from airflow_provider_ckpt.config.connector import (
    Connector,
    DeadLetterStoreType,
    OutOfRangeTimes,
    SinkType,
    SourceType,
)
from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import ColumnNames, RequiredText
from airflow_provider_ckpt.connectors.full_source_section import FullSourceSection
from airflow_provider_ckpt.connectors.postgres.client import quote, split_table
from airflow_provider_ckpt.connectors.postgres.column_types import FIRST_DAY
from airflow_provider_ckpt.connectors.replacing_sink_section import ReplaceSection
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.table_sink_section import TableSinkSection

_HERE = "airflow_provider_ckpt.connectors.postgres"


class PostgresSourceSection(FullSourceSection):
    """Section ``source`` of a pipeline that reads a PostgreSQL table.

    :param connection: Airflow connection id of the database
    :param table: ``schema.table`` or ``table``
    :param mode: ``incremental`` reads in each run the rows beyond the newest ``cursor``; ``full`` reads all rows, for a
        sink with ``mode: replace``
    :param cursor: the column that orders rows and only grows: an integer, a timestamp or a date; has no effect with
        ``mode: full``
    :param key: the columns that identify a record, if any; they distinguish rows with the same cursor
    :param columns: the columns to read; empty for all
    :param close_wait: longest time for which planning waits for the transactions to end that may still add rows below
        its bound; if they last longer, it takes an older bound that has closed meanwhile, or plans no new rows
    :param late_rows: reaction to rows that appear, or will appear, below the checkpoint: ``refuse`` fails the run;
        ``recover`` only warns, for users who run ``airflow ckpt recover``
    :param row_security: reaction to row security policies that apply to the connection's user: ``refuse`` fails the
        run; ``apply`` reads the rows that they show
    """

    place_key: ClassVar[str] = "table"
    ordered_by_cursor: ClassVar[bool] = True
    reports_columns: ClassVar[bool] = True

    connection: RequiredText
    table: RequiredText
    key: ColumnNames = ()
    columns: ColumnNames = ()
    close_wait: Duration = timedelta(seconds=30)
    late_rows: Literal["refuse", "recover"] = "refuse"
    row_security: Literal["refuse", "apply"] = "refuse"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns to read, which are the value of ``columns``; see :attr:`SourceSection.column_names`."""
        return self.columns

    @property
    def position_columns(self) -> tuple[str, ...]:
        """The cursor column and the key columns, in this order; see :attr:`SourceSection.position_columns`."""
        return (self.cursor, *self.key)


class PostgresReplaceSection(ReplaceSection):
    """Section ``sink.replace``: the limits of a refresh, and how it is published.

    :param swap: ``rows`` deletes the target's rows and inserts the new ones; ``rename`` drops the target and renames
        the table with the new rows
    """

    swap: Literal["rows", "rename"] = "rows"


class PostgresSinkSection(TableSinkSection):
    """Section ``sink`` of a pipeline that writes to a PostgreSQL table.

    Its other keys are those of :class:`.TableSinkSection`.

    :param create: whether a run creates the target from the source's columns if it does not exist
    :param replace: limits of ``mode: replace``, and how a refresh is published
    """

    create: bool = False
    replace: PostgresReplaceSection = Field(default_factory=PostgresReplaceSection)

    @property
    def creates_target(self) -> bool:
        """True if a run creates a missing target (``create: true``); see :attr:`SinkSection.creates_target`."""
        return self.create

    changes_columns: ClassVar[bool] = True

    def staging_table(self, generation: int, context: SinkContext) -> str:
        """Return the name of the staging table of a refresh; see :meth:`TableSinkSection.staging_table`."""
        from airflow_provider_ckpt.connectors.postgres.staging import staging_place

        del context
        return staging_place(self.table, generation)

    @classmethod
    def name_in_place(cls, name: str) -> str:
        """Return a name, in double quotes if it contains a dot or a quote; see :meth:`SinkSection.name_in_place`.

        :param name: name of a schema or table
        """
        return quote(name) if set('."') & set(name) else name

    @property
    def place_parts(self) -> tuple[str, ...]:
        """Names of the target's schema, if given, and of its table; see :attr:`SinkSection.place_parts`."""
        return tuple(filter(None, split_table(self.table)))

    @property
    def takes_raw_rows(self) -> bool:
        """True if the target can receive rows as raw COPY data; see :attr:`SinkSection.takes_raw_rows`.

        It can with ``mode: replace``, and with ``mode: append`` unless ``rows_may_differ`` is true.
        """
        return self.mode == "replace" or (not self.upserts and not self.rows_may_differ)


def _source_path(section: PostgresSourceSection) -> str:
    return f"{_HERE}.full_source:PostgresFullSource" if section.is_full else f"{_HERE}.source:PostgresSource"


def _reader_path(section: PostgresSourceSection) -> str:
    return f"{_HERE}.full_reader:PostgresFullReader" if section.is_full else f"{_HERE}.reader:PostgresReader"


def _sink_path(section: PostgresSinkSection) -> str:
    if not section.replaces:
        return f"{_HERE}.sink:PostgresSink"
    if section.replace.swap == "rename":
        return f"{_HERE}.renaming_sink:PostgresRenamingSink"
    return f"{_HERE}.replacing_sink:PostgresReplacingSink"


def _writer_path(section: PostgresSinkSection) -> str:
    return f"{_HERE}.staging_writer:PostgresStagingWriter" if section.replaces else f"{_HERE}.writer:PostgresWriter"


def _raw_copy_path(section: PostgresSinkSection) -> str:
    return f"{_HERE}.page_copy:PostgresPageCopy" if section.replaces else f"{_HERE}.raw_copy:PostgresRawCopy"


CONNECTOR = Connector(
    source=SourceType(
        section=PostgresSourceSection,
        source=_source_path,
        reader=_reader_path,
        out_of_range_times=OutOfRangeTimes(
            FIRST_DAY,
            "is infinity or after the year 294246, which can only be delivered to a postgres sink, and only from a "
            "column that no expression uses; cast it to text in a view",
            stored_by_own_sink=True,
        ),
        database=f"{_HERE}.database:PostgresDatabase",
    ),
    sink=SinkType(
        section=PostgresSinkSection,
        sink=_sink_path,
        writer=_writer_path,
        dead_letter_place=f"{_HERE}.names:dead_letter_place",
    ),
    dead_letter_store=DeadLetterStoreType(
        store=f"{_HERE}.dead_letter_store:PostgresDeadLetterStore",
        place=f"{_HERE}.names:dead_letter_place",
        keys=("connection", "table"),
        needs_connection=True,
    ),
    raw_copy=_raw_copy_path,
    dataset=f"{_HERE}.names:dataset",
    preload=("adbc_driver_postgresql.dbapi", "psycopg2.extras"),
    preload_before_fork=(f"{_HERE}.sink", f"{_HERE}.source"),
)
