"""Read ranges of a PostgreSQL table into Arrow by binary COPY; runs in a lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    error_info,
    open_adbc,
    quote,
    require_connection,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.column_types import INTEGERS, MICROSECONDS_A_DAY, CursorKind, value_sql
from airflow_provider_ckpt.connectors.postgres.table import Table, adbc_fetch, describe_table
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.errors import ErrorType, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.postgres.table import Fetch
    from airflow_provider_ckpt.core.wave import BatchTask

_SETTINGS = {"work_mem": "64MB", "default_transaction_read_only": "on"}
"""Session settings; a lane sorts at most one batch, so it sorts in memory."""

_IS_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
    WHERE c.oid = {0}::oid AND (c.relkind = 'p' OR NOT c.relhassubclass)
      AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = {1}::int
)
"""
"""Query whether a column is unique in a table with its partitions and children."""

_MAY_READ_TABLE = "SELECT pg_catalog.has_table_privilege({0}::oid, 'SELECT')"
"""Query whether the user may read the whole table, and not only single columns."""


class PostgresReader:
    """Reader of one lane; see :class:`~airflow_provider_ckpt.connectors.source_protocol.Reader`.

    :param shape: the columns, as resolved by the planning side
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        assert pipeline.source.table is not None
        assert pipeline.source.cursor is not None
        self._connection = require_connection(connection, "source")
        self._table_name = pipeline.source.table
        self._cursor_column = pipeline.source.cursor
        self._key = pipeline.source.key
        self._application = f"ckpt-read:{pipeline.name}"
        self._shape = shape
        self._client: Any = None
        self._cursor: Any = None
        self._table: Table | None = None
        self._ties: Sequence[str] = ()

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the range's rows in position order; see :meth:`Reader.read`.

        The driver returns infinity and times after the year 294246 with an overflow: before PostgreSQL's first day.
        """
        from adbc_driver_manager import Error

        try:
            table = self._connect(task)
            self._cursor.execute(self._select(table, task))
            for batch in self._cursor.fetch_record_batch():
                if batch.num_rows:
                    yield self._to_records(table, batch)
        except Error as error:
            info = error_info(
                error, ErrorType.SOURCE, f"reading {self._table_name} {task.range}", lost=self._lost_error()
            )
            self.close()
            raise to_exception(info) from error

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers of a position: table, partition, position."""
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
        self._client = self._cursor = self._table = None

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

    def _connect(self, task: BatchTask) -> Table:
        if self._client is None:
            self._client = open_adbc(self._connection, self._application, ErrorType.SOURCE, _SETTINGS)
            self._cursor = self._client.cursor()
        if self._table is None:
            fetch = adbc_fetch(self._cursor)
            self._table = describe_table(fetch, self._table_name)
            self._ties = () if self._table is None else self._find_tie_breakers(fetch, self._table)
        planned = task.detail.get("oid")
        if self._table is None or planned not in (None, self._table.oid):
            raise SourceError(
                f"table {self._table_name} is not the one that the batch was planned for: it was dropped or recreated.",
                batch=str(task.key),
                hint="Declare a pipeline of a new name for the new table, or rewind this one.",
            )
        return self._table

    def _select(self, table: Table, task: BatchTask) -> str:
        kind = CursorKind(table.by_name[self._cursor_column].base_type)
        cursor = quote(self._cursor_column)
        return (
            f"SELECT {', '.join(self._columns)} FROM {table.sql}"
            f" WHERE {cursor} >= {value_sql(kind, task.range.start)} AND {cursor} < {value_sql(kind, task.range.end)}"
            f" ORDER BY {', '.join([cursor, *self._ties])}"
        )

    @property
    def _columns(self) -> list[str]:
        columns = [quote(name) + ("::text" if spark == "string" else "") for name, spark in self._shape.columns]
        return columns if self._cursor_column in dict(self._shape.columns) else [*columns, quote(self._cursor_column)]

    def _find_tie_breakers(self, fetch: Fetch, table: Table) -> Sequence[str]:
        """Return SQL expressions that order rows of equal position, so that each read returns them in the same order.

        The physical row location is cheapest, but views have none, and a user with rights to single columns cannot
        read it.
        """
        if fetch(_IS_UNIQUE, [table.oid, table.by_name[self._cursor_column].number])[0][0]:
            return ()
        if self._key:
            return [quote(name) for name in self._key]
        if table.kind != "v" and fetch(_MAY_READ_TABLE, [table.oid])[0][0]:
            return ["tableoid", "ctid"]
        return [f'ROW({", ".join(self._columns)})::text COLLATE "C"']

    def _to_records(self, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        names = [name for name, _ in self._shape.columns]
        at = names.index(self._cursor_column) if self._cursor_column in names else len(names)
        positions = _positions(CursorKind(table.by_name[self._cursor_column].base_type), batch.column(at))
        return pa.RecordBatch.from_arrays([positions, *batch.columns[: len(names)]], names=[POSITION, *names])


def _positions(kind: CursorKind, values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind is CursorKind.DATE:
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), MICROSECONDS_A_DAY)
    if kind in INTEGERS or pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    raise TypeError(f"a cursor of type {values.type}")
