"""Reject source timestamps that Spark cannot represent: PostgreSQL infinity, years after 294246.

The reader yields them as times before the source's first time. Expressions and sinks would take them for real times, so
their records are rejected. The exception is a postgres sink: it stores such times of a postgres source as they are,
from columns that no expression uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import record_error
from airflow_provider_ckpt.connectors.postgres.column_types import FIRST_DAY, MICROSECONDS_A_DAY
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.sql import is_column_name, quote

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape

_FIRST_DAYS = {"postgres": FIRST_DAY, "kafka": 0}
"""By source type, the day of the first time that the source can have, in days since 1970."""

_MESSAGES = {
    "postgres": "is infinity or after the year 294246, which only a postgres sink takes, and only from a column that "
    "no expression names; let a view give it as text",
    "kafka": "is after the year 294246: Kafka counts milliseconds, which may not be what the producer wrote; leave it "
    "out of transform.select",
}
_SQL = {
    "date": "date_from_unix_date({day})",
    "timestamp": "timestamp_micros({microsecond})",
    "timestamp_ntz": "CAST(date_from_unix_date({day}) AS timestamp_ntz)",
}
"""By Spark SQL type of a column, SQL of the beginning of a day."""

_STAR = re.compile(r"(?:^|[^\w)\]`'\"\s])\s*\*")
"""Regular expression for a ``*`` that stands for all columns; a multiplication has a value before it."""


@dataclass(frozen=True, slots=True)
class TimeRangeCheck:
    """Check that Spark can represent the times of a source column.

    :param name: name of the source's column
    :param kind: Spark SQL type of the column
    :param source: type of the source
    """

    name: str
    kind: str
    source: str

    @property
    def message(self) -> str:
        """Error message for a record whose time is out of range."""
        return f"{self.name} {_MESSAGES[self.source]}"

    def failed(self, column: str) -> str:
        """Return a SQL condition that is true for a record whose time is out of range.

        :param column: SQL of the column
        """
        first = _FIRST_DAYS[self.source]
        return f"{column} < {_SQL[self.kind].format(day=first, microsecond=first * MICROSECONDS_A_DAY)}"

    def out_of_range(self, rows: pa.Table) -> pa.Array:
        """Return the numbers of the records whose time is out of range.

        :param rows: :data:`~.sink_protocol.ROW_NUMBER`, then the columns
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        column = rows.column(self.name)
        first = _FIRST_DAYS[self.source] * (1 if self.kind == "date" else MICROSECONDS_A_DAY)
        number = column.cast(pa.int32() if self.kind == "date" else pa.int64())
        return rows.column(ROW_NUMBER).filter(pc.less(number, first))


def time_range_checks(pipeline: Pipeline, shape: RecordShape) -> list[TimeRangeCheck]:
    """Return a check for each source column with times that the transform uses or passes to the sink.

    Columns that go from a postgres source to a postgres sink unchanged have no check.

    :param pipeline: the pipeline
    :param shape: the source's columns
    """
    source, transform = pipeline.source.type, pipeline.transform
    if source not in _FIRST_DAYS:
        return []
    columns = [] if transform.decode else [quote(name) for name, _ in shape.columns]
    used = list(transform.select.values()) if transform.select else columns
    if source == pipeline.sink.type == "postgres" and not transform.python:
        used = [expression for expression in used if not is_column_name(expression)]
    if transform.where:
        used.append(transform.where)
    return [
        TimeRangeCheck(name, kind, source) for name, kind in shape.columns if kind in _SQL and _may_be_used(name, used)
    ]


def errors(rows: pa.Table, watched: Iterable[TimeRangeCheck]) -> dict[int, ErrorInfo]:
    """Return an error for each record whose time is out of range, by record number.

    :param rows: :data:`~.sink_protocol.ROW_NUMBER`, then the columns
    :param watched: checks of the columns
    """
    return {
        number: record_error(ErrorType.SERIALIZATION, column.message)
        for column in watched
        for number in column.out_of_range(rows).to_pylist()
    }


def _may_be_used(name: str, expressions: Iterable[str]) -> bool:
    """Return whether an expression may use a column; True for some columns that no expression uses is harmless."""
    word = re.compile(rf"(?<!\w){re.escape(quote(name)[1:-1])}(?!\w)", re.IGNORECASE)
    return any(word.search(expression) or _STAR.search(expression) for expression in expressions)
