"""Read a whole table into Arrow by one query; runs in a lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.connectors.sql.connector import SqlSourceSection
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.incoming_values import ValueMismatchError
from airflow_provider_ckpt.connectors.sql.source_table import look_up_whole
from airflow_provider_ckpt.connectors.table_origin import table_origin
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class SqlFullReader:
    """Reader of all rows of a table, in one lane.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Reader`.

    :param pipeline: ``source.table`` names the table
    :param connection: the Airflow connection of the database
    :param shape: the columns that :meth:`.SqlFullSource.shape` returned
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        names = tuple(name for name, _ in shape.columns)
        self._section = SqlSourceSection.of(pipeline).model_copy(update={"columns": names})
        self._shape = shape
        self._database = Database(connection, "source")

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the table, at the position of the batch, as one Arrow batch; see :meth:`Reader.read`.

        :raises SourceError: if the query fails, a value is not of its column's type, or a column has another type than
            at planning
        """
        import pyarrow as pa
        import sqlalchemy as sa

        if task.range.start == task.range.end:
            return
        with self._database.session(f"reading {self._section.table}") as connection:
            table = look_up_whole(self._database, connection, self._section)
            columns = table.columns_of(self._shape, str(task.key))
            query = sa.select(*table.values(columns)).select_from(table.clause)
            try:
                found = self._database.dialect.fetch(connection, query, columns)
            except ValueMismatchError as error:
                raise SourceError(
                    f"column {error.column} of {table.label} holds a value of another type.",
                    batch=str(task.key),
                    hint="Correct the row, convert the column in a view, or leave it out by source.columns.",
                ) from error
        if len(found[0]):
            positions = pa.repeat(pa.scalar(task.range.start, pa.int64()), len(found[0]))
            yield pa.RecordBatch.from_arrays([positions, *found], names=[POSITION, *(self._section.columns)])

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the headers of a dead letter that locate its record; see :func:`.table_origin`."""
        return table_origin(task, position)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()
