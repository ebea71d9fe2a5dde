"""Reading side of the Parquet source: read ranges of rows, and convert them to the pipeline's columns and types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.arrow_types import to_arrow
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.open_storage import open_storage
from airflow_provider_ckpt.connectors.files.parquet_columns import RecordColumns
from airflow_provider_ckpt.connectors.files.parquet_file import RowReader
from airflow_provider_ckpt.connectors.files.reader import origin_headers
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetReader:
    """Reading side of the Parquet source in one lane; it keeps the file of the last batch open.

    See :class:`~.source_protocol.Reader`. The row ranges to read are in ``task.detail["segments"]``, where
    :meth:`ParquetSource.locate` has put them.

    :param pipeline: the pipeline
    :param connection: the object store's connection; not needed for local files, since their paths are absolute
    :param shape: columns of the source
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        missing_is_null = pipeline.error_handling.missing_field_behavior == "null"
        self._columns = RecordColumns(
            dict(shape.columns), "this run", bool(pipeline.transform.schema_), missing_is_null
        )
        self._types = {name: to_arrow(kind) for name, kind in shape.columns}
        self._storage = open_storage(pipeline, connection)
        self._rows: RowReader | None = None

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task's range, with the source's columns and types; see :meth:`.Reader.read`.

        :raises SourceError: if a file has changed since it was recorded, or a value does not fit its column's type
        :raises IoError: if the file system fails
        """
        for segment in task.detail["segments"]:
            rows = self._open(segment["path"], segment["etag"])
            for first, batch in rows.read(segment["start"], segment["end"]):
                yield self._records(batch, segment["base"] + first, rows)

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers that locate a record: its file, and the number of its row in the file, from 0.

        :param task: the batch
        :param position: position of the record
        """
        return origin_headers(task, position)

    def close(self) -> None:
        """Close the file that was read last."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _open(self, path: str, etag: str) -> RowReader:
        if self._rows is None or (self._rows.path, self._rows.etag) != (path, etag):
            self.close()
            rows = RowReader(self._storage, path, etag, list(self._types))
            self._rows = rows
            self._columns.refuse_misfit(path, rows.schema)
        return self._rows

    def _records(self, batch: pa.RecordBatch, position: int, rows: RowReader) -> pa.RecordBatch:
        import numpy as np
        import pyarrow as pa

        positions = pa.array(np.arange(position, position + batch.num_rows, dtype=np.int64))
        columns: list[Any] = [positions, *(self._column(batch, name, rows) for name in self._types)]
        return pa.RecordBatch.from_arrays(columns, [POSITION, *self._types])

    def _column(self, batch: pa.RecordBatch, name: str, rows: RowReader) -> pa.Array:
        import pyarrow as pa

        wanted = self._types[name]
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, wanted)
        column = batch.column(name)
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        try:
            return column if column.type == wanted else column.cast(wanted)
        except pa.ArrowException as error:
            raise SourceError(
                f"{rows.path}: column {name}: {_without_value(error)}.",
                hint="Leave the column out by transform.schema, or write the file with values that Spark can hold.",
            ) from error


def _without_value(error: Exception) -> str:
    """Return the first line of an Arrow error without the value that it quotes, since errors must not contain data."""
    message, lost, _ = str(error).splitlines()[0].partition(" would lose data")
    return message + lost
