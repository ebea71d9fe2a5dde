"""Read ranges of a PostgreSQL table into Arrow by binary COPY; runs in a lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    error_info,
    open_adbc,
    require_connection,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.column_types import INTEGERS, MICROSECONDS_A_DAY, CursorKind
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.range_query import SESSION_SETTINGS, RangeQuery, column_expressions
from airflow_provider_ckpt.connectors.postgres.table import adbc_fetch
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.errors import ErrorType, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave import BatchTask


class PostgresReader:
    """Reader of one lane; see :class:`~airflow_provider_ckpt.connectors.source_protocol.Reader`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the Airflow connection of the database
    :param shape: the columns that :meth:`.PostgresSource.shape` returned
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        source = PostgresSourceSection.of(pipeline)
        self._connection = require_connection(connection, "source")
        self._pipeline = pipeline
        self._table_name = source.table
        self._cursor_column = source.cursor
        self._application = f"ckpt-read:{pipeline.name}"
        self._shape = shape
        self._client: Any = None
        self._cursor: Any = None
        self._query: RangeQuery | None = None

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
        except Error as error:
            info = error_info(
                error, ErrorType.SOURCE, f"reading {self._table_name} {task.range}", lost=self._lost_error()
            )
            self.close()
            raise to_exception(info) from error

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the headers of a dead letter that locate its record: source table, partition and position.

        :param task: the record's batch
        :param position: the record's position
        """
        return {
            "source-table": task.key.source,
            "source-partition": task.key.source,
            "source-position": str(position),
        }

    def close(self) -> None:
        """Close the connection, whether it is alive or lost."""
        if self._client is None:
            return
        self._cursor.close()
        self._client.close()
        self._client = self._cursor = self._query = None

    def _lost_error(self) -> bool:
        from adbc_driver_manager import Error

        if self._cursor is None:
            return False
        try:
            self._cursor.execute("SELECT 1")
            self._cursor.fetchall()
        except Error:
            return True
        return False

    def _connect(self, task: BatchTask) -> RangeQuery:
        if self._client is None:
            self._client = open_adbc(self._connection, self._application, ErrorType.SOURCE, SESSION_SETTINGS)
            self._cursor = self._client.cursor()
        if self._query is None:
            self._query = RangeQuery.describe(adbc_fetch(self._cursor), self._pipeline, self._shape)
        planned = task.detail.get("oid")
        if self._query is None or planned not in (None, self._query.table.oid):
            raise SourceError(
                f"table {self._table_name} is not the one that the batch was planned for: it was dropped or recreated.",
                batch=str(task.key),
                hint="Declare a pipeline of a new name for the new table, or rewind this one.",
            )
        return self._query

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
