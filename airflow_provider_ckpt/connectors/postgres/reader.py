"""Read ranges of a PostgreSQL table into Arrow by binary COPY; runs in a lane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.column_types import INTEGERS, MICROSECONDS_A_DAY, CursorKind
from airflow_provider_ckpt.connectors.postgres.columns_version import (
    altered_error,
    columns_version_sql,
    refuse_other_columns,
)
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.range_query import RangeQuery, column_expressions
from airflow_provider_ckpt.connectors.postgres.reader_session import ReaderSession
from airflow_provider_ckpt.connectors.postgres.table import adbc_fetch
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class PostgresReader(ReaderSession):
    """Reader of one lane for a table with a cursor.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Reader`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the Airflow connection of the database
    :param shape: the columns that :meth:`.PostgresSource.shape` returned
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        super().__init__(pipeline, connection, shape)
        self._pipeline = pipeline
        self._cursor_column = PostgresSourceSection.of(pipeline).cursor
        self._query: RangeQuery | None = None
        self._columns_version: str | None = None

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a batch in position order; see :meth:`Reader.read`.

        The driver overflows for infinity and times after the year 294246: it returns them as times before PostgreSQL's
        first day, by which the transform recognises and rejects them.

        :raises SourceError: if the query fails, or the table is not the one that the batch was planned for
        """
        from adbc_driver_manager import Error

        try:
            query = self._connect(task)
            self._cursor.execute(query.select(column_expressions(self._shape, self._cursor_column), task.range))
            for batch in self._cursor.fetch_record_batch():
                if batch.num_rows:
                    yield self._to_records(query.cursor_kind, batch)
            self._refuse_altered_columns(task)
        except Error as error:
            raise self._failed(task, error) from error

    def close(self) -> None:
        """Close the connection, whether it is alive or lost."""
        super().close()
        self._query = None

    def _connect(self, task: BatchTask) -> RangeQuery:
        self._open()
        if self._query is None:
            # The version is read before the description, so that it is not newer than the columns described.
            if self._shape.version is not None:
                self._columns_version = self._read_columns_version()
            self._query = RangeQuery.describe(adbc_fetch(self._cursor), self._pipeline, self._shape)
        planned = task.detail.get("oid")
        if self._query is None or planned not in (None, self._query.table.oid):
            raise self._recreated_error(task, "Declare a pipeline of a new name for the new table, or rewind this one.")
        if task.schema != self._shape.version:
            raise SourceError(
                f"the batch is of schema version {task.schema}, and the wave of version {self._shape.version}.",
                batch=str(task.key),
                hint="This is a defect of the run; nothing of the batch was sent.",
            )
        if self._shape.version is not None:
            refuse_other_columns(self._query.table, self._shape, str(task.key))
        return self._query

    def _read_columns_version(self) -> str | None:
        [(version,)] = adbc_fetch(self._cursor)(f"SELECT {columns_version_sql(self._table_name)}", [])
        return None if version is None else str(version)

    def _refuse_altered_columns(self, task: BatchTask) -> None:
        """Raise an error if a column was altered since the query was made: its values may be those of another column.

        :param task: the batch that was read, for the message
        :raises SourceError: with ``recoverable`` set, since another attempt of the batch can succeed
        """
        if self._shape.version is not None and self._read_columns_version() != self._columns_version:
            self._query = None
            raise altered_error(self._table_name, "a column", str(task.key))

    def _to_records(self, kind: CursorKind, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        names = [name for name, _ in self._shape.columns]
        at = names.index(self._cursor_column) if self._cursor_column in names else len(names)
        positions = _positions(kind, batch.column(at))
        return pa.RecordBatch.from_arrays([positions, *batch.columns[: len(names)]], names=[POSITION, *names])


def _positions(kind: CursorKind, values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind is CursorKind.DATE:
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), MICROSECONDS_A_DAY)
    if kind in INTEGERS or pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    raise TypeError(f"a cursor of type {values.type}")
