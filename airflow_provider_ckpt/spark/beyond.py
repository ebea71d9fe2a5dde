"""Times of a source that stand for what no column of theirs holds: PostgreSQL's infinity, or a year after 294246.

They come from the reader as times before PostgreSQL's first. An expression would take them for such, and so would a
sink, so they cost their record. Only a postgres sink takes them as they are, from columns that no expression names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.content import data_error
from airflow_provider_ckpt.connectors.postgres.column_types import DAY, FIRST_DAY
from airflow_provider_ckpt.connectors.protocols import POSITION
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.sql import is_name, quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.protocols import Shape

_FIRST_SQL = {
    "date": f"date_from_unix_date({FIRST_DAY})",
    "timestamp": f"timestamp_micros({FIRST_DAY * DAY})",
    "timestamp_ntz": f"CAST(date_from_unix_date({FIRST_DAY}) AS timestamp_ntz)",
}
"""By Spark SQL type of a column, PostgreSQL's first time."""

_STAR = re.compile(r"(?:^|[^\w)\]`'\"\s])\s*\*")
"""All columns, unlike a multiplication, which has a value before it."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """A column of times that must lie in the calendar.

    :param name: of the source's column
    :param kind: its Spark SQL type
    """

    name: str
    kind: str

    @property
    def message(self) -> str:
        """Why a record is bad whose time does not."""
        return (
            f"{self.name} is infinity or after the year 294246, which only a postgres sink takes, and only from a "
            "column that no expression names; let a view give it as text"
        )

    @property
    def failed(self) -> str:
        """SQL that is true of such a record."""
        return f"{quote(self.name)} < {_FIRST_SQL[self.kind]}"

    def found(self, rows: pa.Table) -> pa.Array:
        """The positions of such records."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = rows.column(self.name)
        first = FIRST_DAY if self.kind == "date" else FIRST_DAY * DAY
        number = column.cast(pa.int32() if self.kind == "date" else pa.int64())
        return rows.column(POSITION).filter(pc.less(number, first))


def columns(pipeline: Pipeline, shape: Shape) -> list[Beyond]:
    """Those that are used and may hold nothing beyond the calendar: all but what PostgreSQL gets as it is."""
    if pipeline.source.type != "postgres":
        return []
    transform = pipeline.transform
    used = list((transform.select or {name: quote(name) for name, _ in shape.columns}).values())
    if pipeline.sink.type == "postgres" and not transform.python:
        used = [expression for expression in used if not is_name(expression)]
    if transform.where:
        used.append(transform.where)
    return [Beyond(name, kind) for name, kind in shape.columns if kind in _FIRST_SQL and _named(name, used)]


def errors(rows: pa.Table, watched: Iterable[Beyond]) -> dict[int, ErrorInfo]:
    """What is wrong with records as they were read, by position."""
    return {
        position: data_error(ErrorType.SERIALIZATION, column.message)
        for column in watched
        for position in column.found(rows).to_pylist()
    }


def _named(name: str, expressions: Iterable[str]) -> bool:
    """Whether an expression may mean a column; too often is safe."""
    word = re.compile(rf"(?<!\w){re.escape(quote(name)[1:-1])}(?!\w)", re.IGNORECASE)
    return any(word.search(expression) or _STAR.search(expression) for expression in expressions)
