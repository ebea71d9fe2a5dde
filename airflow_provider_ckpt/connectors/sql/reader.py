"""Reading side of the sql source: read ranges of a table into Arrow, in a lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.connectors.sql.columns import Kind
from airflow_provider_ckpt.connectors.sql.connector import SqlSourceSection
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.incoming_values import ValueMismatchError
from airflow_provider_ckpt.connectors.sql.source_table import SourceTable, look_up
from airflow_provider_ckpt.connectors.sql.times import MICROSECONDS_A_DAY
from airflow_provider_ckpt.connectors.table_origin import table_origin
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class SqlReader:
    """Reading side of the sql source in one lane.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Reader`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the Airflow connection of the database
    :param shape: the columns that :meth:`.SqlSource.shape` returned
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        self._section = SqlSourceSection.of(pipeline)
        self._shape = shape
        self._database = Database(connection, "source")
        self._table: SourceTable | None = None

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a batch in position order, as one Arrow batch; see :meth:`Reader.read`.

        :raises SourceError: if the query fails, a value is not of its column's type, or the table is not the one that
            the batch was planned for
        """
        import pyarrow as pa
        import sqlalchemy as sa

        with self._database.session(f"reading {self._section.table} {task.range}") as connection:
            table = self._find(connection)
            columns = table.columns_of(self._shape, str(task.key))
            query = (
                sa.select(table.at.label("ckpt_at"), *table.values(columns))
                .where(table.within(task.range.start, task.range.end))
                .order_by(table.at, *(table.clause.c[name] for name in self._tie_breakers(table)))
            )
            try:
                positions, *found = self._database.dialect.fetch(connection, query, [table.cursor, *columns])
            except ValueMismatchError as error:
                raise self._mismatch(connection, table, task, error) from error
        if len(positions):
            names = [POSITION, *(name for name, _ in self._shape.columns)]
            yield pa.RecordBatch.from_arrays([_checked_positions(table, positions, task), *found], names=names)

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the headers of a dead letter that locate its record; see :func:`.table_origin`."""
        return table_origin(task, position)

    def close(self) -> None:
        """Close the connection."""
        self._table = None
        self._database.close()

    def _find(self, connection: Any) -> SourceTable:
        if self._table is None:
            wanted = self._section.model_copy(update={"columns": tuple(name for name, _ in self._shape.columns)})
            self._table = look_up(self._database, connection, wanted)
        return self._table

    @staticmethod
    def _tie_breakers(table: SourceTable) -> tuple[str, ...]:
        """Return the columns of a unique key by which rows of equal cursor are ordered, the same way in each read.

        Return no columns if the cursor is unique, so that no rows are equal, or if the table has no unique key.

        :param table: the source table
        """
        unique = table.table.unique
        if any(key == (table.cursor.name,) for key in unique):
            return ()
        return next(iter(unique), ())

    def _mismatch(self, connection: Any, table: SourceTable, task: BatchTask, error: ValueMismatchError) -> SourceError:
        rows = table.rows(task.range.start, task.range.end).limit(1).offset(error.index)
        value = connection.execute(rows).scalar()
        return SourceError(
            f"column {error.column} of {table.label} holds a value of another type.",
            batch=str(task.key),
            position=None if value is None else table.position(value),
            hint="Correct the row, convert the column in a view, or leave it out by source.columns.",
        )


def _checked_positions(table: SourceTable, values: pa.Array, task: BatchTask) -> pa.Array:
    """Return the positions of rows, after checking that they lie in the batch's range.

    :param table: the source table
    :param values: cursor values of the rows
    :param task: the batch
    :raises SourceError: if a position lies outside of the range, as that of ``0000-00-00``, which is no date, does
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.cursor.kind is Kind.DATE:
        found = pc.multiply(values.cast(pa.int32()).cast(pa.int64()), MICROSECONDS_A_DAY)
    else:
        found = values.cast(pa.int64())
    ends = pc.min_max(found).as_py()
    if ends["min"] < task.range.start or ends["max"] >= task.range.end:
        raise SourceError(
            f"cursor {table.cursor.name} of {table.label} is no date in some rows, such as 0000-00-00.",
            batch=str(task.key),
            hint="Correct these rows, or read a view without them.",
        )
    return found
