"""Declare the sql connector: the keys of its ``source`` and ``sink`` sections, and the classes that do the work.

It serves MySQL, MariaDB, SQLite, and other databases whose SQLAlchemy dialect is installed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Literal

from airflow_provider_ckpt.config.connector import Connector, OutOfRangeTimes, SinkType, SourceType
from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import ColumnNames, RequiredText
from airflow_provider_ckpt.connectors.full_source_section import FullSourceSection
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql.names import quote, split_name
from airflow_provider_ckpt.connectors.table_sink_section import TableSinkSection

_HERE = "airflow_provider_ckpt.connectors.sql"

FIRST_DAY = -719_162
"""0001-01-01 in days since 1970-01-01: the first date that is not zero or incomplete, as ``0000-00-00`` is."""


class SqlSourceSection(FullSourceSection):
    """Section ``source`` of a pipeline that reads a table of an SQL database.

    :param connection: Airflow connection id of the database
    :param table: ``schema.table`` or ``table``; in MySQL and MariaDB, the schema is a database
    :param mode: ``incremental`` reads in each run the rows whose ``cursor`` is beyond those that were read before;
        ``full`` reads all rows, for a sink with ``mode: replace``
    :param cursor: the column that orders rows and only grows: an integer; in MySQL and MariaDB also a date or time; has
        no effect with ``mode: full``
    :param columns: the columns to read; empty for all
    :param close_wait: longest time for which planning waits for running transactions to end; if the database does not
        show them, the time that must pass after a bound was determined before rows below it are read
    :param late_rows: reaction if new rows will get numbers below the checkpoint, as when a table was emptied and its
        numbering set back: ``refuse`` fails the run; ``recover`` only warns, for users who run ``airflow ckpt recover``
    """

    place_key: ClassVar[str] = "table"
    ordered_by_cursor: ClassVar[bool] = True

    connection: RequiredText
    table: RequiredText
    columns: ColumnNames = ()
    close_wait: Duration = timedelta(seconds=30)
    late_rows: Literal["refuse", "recover"] = "refuse"


class SqlSinkSection(TableSinkSection):
    """Section ``sink`` of a pipeline that writes to a table of an SQL database.

    Its other keys are those of :class:`.TableSinkSection`. In MySQL and MariaDB, the schema in ``table`` is a database.

    :param untested_dialect: whether ``delivery: exactly_once`` is allowed with a dialect that has not passed the
        conformance suite
    """

    changes_columns: ClassVar[bool] = True

    untested_dialect: bool = False

    def staging_table(self, generation: int, context: SinkContext) -> str:
        """Return the name of the staging table of a refresh; see :meth:`TableSinkSection.staging_table`."""
        from airflow_provider_ckpt.connectors.sql.staging import staging_table

        schema, table = split_name(self.table)
        name = staging_table(table, generation, context)
        return f"{schema}.{name}" if schema else name

    @classmethod
    def name_in_place(cls, name: str) -> str:
        """Return a name, in double quotes if it contains a dot or a quote; see :meth:`SinkSection.name_in_place`.

        :param name: name of a schema or table
        """
        return quote(name) if set('."`') & set(name) else name

    @property
    def place_parts(self) -> tuple[str, ...]:
        """Names of the target's schema, if given, and of its table; see :attr:`SinkSection.place_parts`."""
        return tuple(filter(None, split_name(self.table)))


def _sink_path(section: SqlSinkSection) -> str:
    return f"{_HERE}.replacing_sink:SqlReplacingSink" if section.replaces else f"{_HERE}.sink:SqlSink"


def _writer_path(section: SqlSinkSection) -> str:
    return f"{_HERE}.staging_writer:SqlStagingWriter" if section.replaces else f"{_HERE}.writer:SqlWriter"


def _source_path(section: SqlSourceSection) -> str:
    return f"{_HERE}.full_source:SqlFullSource" if section.is_full else f"{_HERE}.source:SqlSource"


def _reader_path(section: SqlSourceSection) -> str:
    return f"{_HERE}.full_reader:SqlFullReader" if section.is_full else f"{_HERE}.reader:SqlReader"


CONNECTOR = Connector(
    source=SourceType(
        section=SqlSourceSection,
        source=_source_path,
        reader=_reader_path,
        database=f"{_HERE}.source_database:SqlSourceDatabase",
        out_of_range_times=OutOfRangeTimes(
            FIRST_DAY,
            "is a zero or incomplete date, such as 0000-00-00, which is no date in Spark; in a view, turn it into NULL "
            "with nullif() or cast it to text",
        ),
    ),
    sink=SinkType(
        section=SqlSinkSection,
        sink=_sink_path,
        writer=_writer_path,
        dead_letter_place=f"{_HERE}.names:dead_letter_place",
        conformance="airflow_provider_ckpt.testing.declared_sql_sink",
    ),
    dataset=f"{_HERE}.names:dataset",
    preload=("sqlalchemy",),
)
