"""Read, in a lane, ranges of pages of a PostgreSQL table into Arrow, all under the snapshot of a refresh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    quote,
)
from airflow_provider_ckpt.connectors.postgres.page_query import PAGE, PageQuery, import_snapshot
from airflow_provider_ckpt.connectors.postgres.reader_session import ReaderSession
from airflow_provider_ckpt.connectors.postgres.table import Table, adbc_fetch, describe_table
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class PostgresFullReader(ReaderSession):
    """Reader of one lane for ``mode: full``; see :class:`~airflow_provider_ckpt.connectors.source_protocol.Reader`.

    :param pipeline: ``source.table`` names the table
    :param connection: the Airflow connection of the database
    :param shape: the columns that :meth:`.PostgresFullSource.shape` returned
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        super().__init__(pipeline, connection, shape)
        self._table: Table | None = None
        self._snapshot: str | None = None

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a batch in the order of the pages; see :meth:`Reader.read`.

        :raises SourceError: if the query fails, the snapshot has ended, or the table was dropped or recreated
        """
        import pyarrow as pa
        from adbc_driver_manager import Error

        columns = [quote(name) + ("::text" if spark == "string" else "") for name, spark in self._shape.columns]
        names = [name for name, _ in self._shape.columns]
        try:
            table = self._connect(task)
            self._cursor.execute(PageQuery(table).select([PAGE, *columns], task.range))
            for batch in self._cursor.fetch_record_batch():
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(batch.columns, names=[POSITION, *names])
        except Error as error:
            raise self._failed(task, error) from error

    def close(self) -> None:
        """Close the connection, whether it is alive or lost."""
        super().close()
        self._table = self._snapshot = None

    def _is_lost(self) -> bool:
        from adbc_driver_manager import Error

        try:
            if self._cursor is not None:
                self._cursor.executescript("ROLLBACK")
        except Error:
            return True
        return super()._is_lost()

    def _connect(self, task: BatchTask) -> Table:
        """Begin a transaction under the snapshot of the batch's refresh, unless one is open, and return the table.

        :param task: the batch, whose ``detail`` has the snapshot's id and the table's oid
        :raises SourceError: if the table was dropped or recreated since the refresh began
        """
        self._open()
        if self._snapshot is not None and self._snapshot != task.detail.get("snapshot"):
            self._cursor.executescript("ROLLBACK")
            self._snapshot = None
        if self._snapshot is None:
            for statement in import_snapshot(task):
                self._cursor.executescript(statement)
            self._snapshot = task.detail["snapshot"]
            self._table = describe_table(adbc_fetch(self._cursor), self._table_name)
        if self._table is None or self._table.oid != task.detail["oid"]:
            raise self._recreated_error(task, "Declare a pipeline of a new name for the new table.")
        return self._table
