"""Reject source timestamps that Spark cannot represent: PostgreSQL's infinity, and years after 294246.

For each such timestamp, a reader yields a substitute: a time before the earliest time that the source can have.
Expressions and sinks would take the substitute for a real time, so the record is rejected. A sink of the same connector
may be the exception: a postgres sink stores such times of a postgres source unchanged, from columns that no expression
uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.connector import OutOfRangeTimes
from airflow_provider_ckpt.config.installed_connectors import find_connector
from airflow_provider_ckpt.connectors.batch_content import record_error
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.sql import is_column_name, quote

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape

_SQL = {
    "date": "date_from_unix_date({day})",
    "timestamp": "timestamp_micros({microsecond})",
    "timestamp_ntz": "CAST(date_from_unix_date({day}) AS timestamp_ntz)",
}
"""By Spark SQL type of a column, SQL of the first moment of a day.

``{day}`` stands for the number of days from 1970-01-01 to it, ``{microsecond}`` for the number of microseconds.
"""

_MICROSECONDS_A_DAY = 86_400_000_000
_STAR = re.compile(r"(?:^|[^\w)\]`'\"\s])\s*\*")
"""Pattern of a ``*`` that stands for all columns; a ``*`` that multiplies has a value before it."""


@dataclass(frozen=True, slots=True)
class TimeRangeCheck:
    """Check that Spark can represent the values of a source column with dates or times.

    :param name: name of the column
    :param kind: Spark SQL type of the column
    :param times: the times that the connector declares as out of Spark's range: their limit, and the text for error
        messages
    """

    name: str
    kind: str
    times: OutOfRangeTimes

    @property
    def message(self) -> str:
        """Error message for a record whose time is out of range."""
        return f"{self.name} {self.times.message}"

    def failed(self, column: str) -> str:
        """Return a SQL condition that is true for a record whose time is out of range.

        :param column: SQL expression of the column
        """
        first = self.times.first_day
        return f"{column} < {_SQL[self.kind].format(day=first, microsecond=first * _MICROSECONDS_A_DAY)}"

    def out_of_range(self, rows: pa.Table) -> pa.Array:
        """Return the record numbers of the rows whose time is out of range.

        :param rows: :data:`~.sink_protocol.ROW_NUMBER`, then the source's columns
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        column = rows.column(self.name)
        first = self.times.first_day * (1 if self.kind == "date" else _MICROSECONDS_A_DAY)
        number = column.cast(pa.int32() if self.kind == "date" else pa.int64())
        return rows.column(ROW_NUMBER).filter(pc.less(number, first))


def time_range_checks(pipeline: Pipeline, shape: RecordShape) -> list[TimeRangeCheck]:
    """Return a check for each source column with dates or times that an expression uses or that is passed to the sink.

    Columns that go to a sink unchanged have no check if the sink stores such times as they are.

    :param pipeline: the pipeline's declaration
    :param shape: names and types of the source's columns
    """
    source, transform = find_connector(pipeline.source.type).source, pipeline.transform
    times = source.out_of_range_times if source else None
    if times is None:
        return []
    columns = [] if transform.decode else [quote(name) for name, _ in shape.columns]
    used = list(transform.select.values()) if transform.select else columns
    if times.stored_by_own_sink and pipeline.source.type == pipeline.sink.type and not transform.python:
        used = [expression for expression in used if not is_column_name(expression)]
    if transform.where:
        used.append(transform.where)
    return [
        TimeRangeCheck(name, kind, times) for name, kind in shape.columns if kind in _SQL and _may_be_used(name, used)
    ]


def errors(rows: pa.Table, watched: Iterable[TimeRangeCheck]) -> dict[int, ErrorInfo]:
    """Return an error, by record number, for each row with a time that Spark cannot represent.

    :param rows: :data:`~.sink_protocol.ROW_NUMBER`, then the source's columns
    :param watched: checks to apply, one for each column with dates or times
    """
    return {
        number: record_error(ErrorType.SERIALIZATION, column.message)
        for column in watched
        for number in column.out_of_range(rows).to_pylist()
    }


def _may_be_used(name: str, expressions: Iterable[str]) -> bool:
    """Return whether one of the expressions may use a column.

    The result may also be True for a column that no expression uses; such a column is then checked needlessly.

    :param name: name of the column
    :param expressions: SQL texts of the expressions
    """
    word = re.compile(rf"(?<!\w){re.escape(quote(name)[1:-1])}(?!\w)", re.IGNORECASE)
    return any(word.search(expression) or _STAR.search(expression) for expression in expressions)
