"""Model of a pipeline's source.

Keys and defaults are those of the table in the docs. Keys that a type of source requires are checked here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from pydantic import model_validator

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import ColumnNames, Section, WholeNumber, require_keys


class SourceSection(Section):
    """Source of records.

    :param type: ``files``, ``postgres``, ``kafka`` or ``jdbc``
    :param connection: Airflow connection id
    :param table: ``schema.table`` or ``table``; for jdbc also ``catalog.schema.table`` (postgres, jdbc)
    :param path: a directory or a glob pattern (files)
    :param format: ``jsonl``, ``csv`` or ``parquet``; for text files it must agree with ``transform.decode`` (files)
    :param topic: the topic's name (kafka)
    :param cursor: the column that orders rows and only grows: an integer, a timestamp or a date (postgres, jdbc)
    :param key: the columns that identify a record, if any; they distinguish rows with the same cursor (postgres)
    :param columns: the columns to read; all by default (postgres, jdbc)
    :param start_from: ``earliest``, ``latest``, or a position; the start of the very first run
    :param close_wait: how long planning waits for running transactions to end (postgres), or, as jdbc cannot see them,
        how long a bound must be known before records below it are read (jdbc)
    :param follow_links: whether symbolic links among the files are followed (files)
    :param late_rows: ``refuse`` fails if rows appear, or will appear, below the checkpoint; ``recover`` only warns, for
        users who run ``airflow ckpt recover`` (postgres)
    :param header: whether each file's first line names its columns (csv)
    :param jars: paths of the driver's jars on the worker, from where Spark loads them too (jdbc)
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
        """Return whether the source is files with typed columns, that is Parquet."""
        return self.type == "files" and self.format == "parquet"

    @property
    def ordered_by_cursor(self) -> bool:
        """Return whether positions are values of a column, so that rows may appear below positions that were read."""
        return self.type in ("postgres", "jdbc")

    @property
    def read_by_spark(self) -> bool:
        """Return whether Spark itself reads the source, so that a lane has only the columns that Spark passes on."""
        return self.type == "jdbc"
