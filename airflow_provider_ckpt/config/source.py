"""Model of a pipeline's section ``source``.

Keys and defaults are those of the table in the docs. Keys that a type of source requires are checked here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from pydantic import model_validator

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import ColumnNames, Section, WholeNumber, require_keys


class SourceSection(Section):
    """Source of records. The types of source to which a key applies are given in parentheses.

    :param type: ``files``, ``postgres``, ``kafka`` or ``jdbc``
    :param connection: Airflow connection id
    :param table: ``schema.table`` or ``table``; for jdbc also ``catalog.schema.table`` (postgres, jdbc)
    :param path: a directory or a glob pattern (files)
    :param format: ``jsonl``, ``csv`` or ``parquet``; for text files it must agree with ``transform.decode`` (files)
    :param topic: the topic's name (kafka)
    :param cursor: the column that orders rows and only grows: an integer, a timestamp or a date (postgres, jdbc)
    :param key: the columns that identify a record, if any; they distinguish rows with the same cursor (postgres)
    :param columns: the columns to read; empty for all (postgres, jdbc)
    :param start_from: where the very first run starts: ``earliest``, ``latest``, or a position
    :param close_wait: how long planning waits for running transactions to end (postgres). jdbc cannot see transactions;
        there it is how long a bound must be known before records below it are read (jdbc)
    :param follow_links: whether symbolic links among the files are followed (files)
    :param late_rows: reaction to rows that appear, or will appear, below the checkpoint: ``refuse`` fails the run;
        ``recover`` only warns, for users who run ``airflow ckpt recover`` (postgres)
    :param header: whether each file's first line names its columns (csv)
    :param jars: paths of the JDBC driver's jars on the worker; Spark loads them from the same paths (jdbc)
    """

    type: Literal["files", "postgres", "kafka", "jdbc"]
    connection: str | None = None
    table: str | None = None
    path: str | None = None
    format: Literal["jsonl", "csv", "parquet"] | None = None
    topic: str | None = None
    cursor: str | None = None
    key: ColumnNames = ()
    columns: ColumnNames = ()
    start_from: Literal["earliest", "latest"] | WholeNumber = "earliest"
    close_wait: Duration = timedelta(seconds=30)
    follow_links: bool = False
    late_rows: Literal["refuse", "recover"] = "refuse"
    header: bool = True
    jars: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _needs(self) -> Self:
        needs = {
            "files": ("path",),
            "postgres": ("connection", "table", "cursor"),
            "kafka": ("connection", "topic"),
            "jdbc": ("connection", "table", "cursor", "jars"),
        }
        require_keys(self, self.type, needs[self.type])
        return self

    @property
    def is_parquet(self) -> bool:
        """True if the source is a set of Parquet files, whose columns have types."""
        return self.type == "files" and self.format == "parquet"

    @property
    def ordered_by_cursor(self) -> bool:
        """True if positions are values of a cursor column, so that rows may appear below positions that were read."""
        return self.type in ("postgres", "jdbc")

    @property
    def read_by_spark(self) -> bool:
        """True if Spark itself reads the source (jdbc), so that a lane gets only the columns that Spark passes on."""
        return self.type == "jdbc"
