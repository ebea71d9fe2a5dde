"""Build the query that reads one batch: the rows in a range of the cursor column, in a reproducible order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.column_types import CursorKind, null_type, value_sql
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.table import Table, describe_table

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.postgres.table import Fetch
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape
    from airflow_provider_ckpt.core.ranges import Range

SESSION_SETTINGS = {"work_mem": "64MB", "default_transaction_read_only": "on"}
"""Settings of a session that reads batches; the memory is enough to sort a batch, and a lane reads one at a time."""

_IS_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
    WHERE c.oid = {0}::oid AND (c.relkind = 'p' OR NOT c.relhassubclass)
      AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = {1}::int
)
"""
"""Query that returns whether a column is unique in a table with its partitions and children."""

_MAY_READ_TABLE = "SELECT pg_catalog.has_table_privilege({0}::oid, 'SELECT')"
"""Query that returns whether the user may read the whole table, and not only single columns."""


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """Query for the rows of a source table whose cursor value is in a range.

    :param table: the source table
    :param cursor: name of the cursor column
    :param tie_breakers: SQL expressions that order rows of equal cursor value, so that each read returns them in the
        same order
    """

    table: Table
    cursor: str
    tie_breakers: Sequence[str]

    @classmethod
    def describe(cls, fetch: Fetch, pipeline: Pipeline, shape: RecordShape) -> RangeQuery | None:
        """Return the query for a pipeline's source table; None if there is no such table.

        :param fetch: runs a query in the source database
        :param pipeline: the pipeline, with the table's name and its cursor
        :param shape: the columns that the source's records have
        """
        source = PostgresSourceSection.of(pipeline)
        table = describe_table(fetch, source.table)
        if table is None:
            return None
        cursor = source.cursor
        return cls(table, cursor, _tie_breakers(fetch, table, cursor, source.key, shape))

    @property
    def cursor_kind(self) -> CursorKind:
        """Type of the cursor column."""
        return CursorKind(self.table.by_name[self.cursor].base_type)

    def select(self, columns: Sequence[str], span: Range) -> str:
        """Return the SELECT statement that returns a range's rows in position order.

        :param columns: SQL expressions of the columns to return
        :param span: the range of positions
        """
        kind, cursor = self.cursor_kind, quote(self.cursor)
        return (
            f"SELECT {', '.join(columns)} FROM {self.table.sql}"
            f" WHERE {cursor} >= {value_sql(kind, span.start)} AND {cursor} < {value_sql(kind, span.end)}"
            f" ORDER BY {', '.join([cursor, *self.tie_breakers])}"
        )


def column_expressions(shape: RecordShape, cursor: str) -> list[str]:
    """Return the SQL expressions of the columns that a reader selects: those of the shape, and the cursor.

    Columns of types that are not read in binary form are cast to text. Columns that the table does not have any more
    are null.

    :param shape: the columns that the source's records have
    :param cursor: name of the cursor column, which is added at the end if the shape does not contain it
    """
    columns = [
        f"NULL::{null_type(spark)}" if name in shape.absent else quote(name) + ("::text" if spark == "string" else "")
        for name, spark in shape.columns
    ]
    return columns if cursor in dict(shape.columns) else [*columns, quote(cursor)]


def _tie_breakers(fetch: Fetch, table: Table, cursor: str, key: Sequence[str], shape: RecordShape) -> Sequence[str]:
    """Return SQL expressions that order rows of equal position, so that each read returns them in the same order.

    The result is empty if the cursor is unique; otherwise it is the columns of ``source.key`` or, without a key, the
    physical row location. Views have no such location, and a user with rights to single columns cannot read it; then
    the text of all columns is used.

    :param fetch: runs a query in the source database
    :param table: the source table
    :param cursor: name of the cursor column
    :param key: the columns of ``source.key``
    :param shape: the columns that the source's records have
    """
    if fetch(_IS_UNIQUE, [table.oid, table.by_name[cursor].number])[0][0]:
        return ()
    if key:
        return [quote(name) for name in key]
    if table.kind != "v" and fetch(_MAY_READ_TABLE, [table.oid])[0][0]:
        return ["tableoid", "ctid"]
    return [f'ROW({", ".join(column_expressions(shape, cursor))})::text COLLATE "C"']
