"""A PostgreSQL database as the source of many tables: its catalog, and the search for tables with new rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.config.database.catalog import CatalogTable
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.database_protocol import TableProgress
from airflow_provider_ckpt.connectors.postgres.client import (
    error_info,
    open_psycopg,
    quote,
    require_connection,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.new_row_counts import NewRowCounter
from airflow_provider_ckpt.connectors.postgres.row_security import REFUSED
from airflow_provider_ckpt.connectors.postgres.source import PLANNING_SETTINGS
from airflow_provider_ckpt.connectors.postgres.table import Fetch, psycopg_fetch
from airflow_provider_ckpt.core.errors import ErrorType

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.database.catalog import Catalog

_CATALOG = """
SELECT n.nspname::text, c.relname::text, c.reltuples::float8,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index i
             CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY k.place)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
  AND c.relname NOT IN ('ckpt_sink_fence', 'ckpt_sink_receipt', 'ckpt_sink_dead_letter', 'ckpt_sink_replay')
  AND left(c.relname, 11) <> 'ckpt_stage_'
ORDER BY 1, 2
"""
"""Query of all ordinary and partitioned tables, with their columns, primary keys and estimated numbers of rows.

Views are left out, since a view may join tables or show the sink's target.
"""

_SETTINGS = PLANNING_SETTINGS | REFUSED
"""Session settings for counting new rows, under which a query fails if row level security would hide rows from it.

A table for which the query fails is reported with 0 new rows, so that its own run reports the error.
"""

_CHUNK = 200
"""Greatest number of tables in one counting statement, which locks each of them until it ends."""


class PostgresDatabase:
    """A PostgreSQL database as the source of many tables: it reads the catalog and finds the tables with new rows.

    See :class:`~airflow_provider_ckpt.connectors.database_protocol.SourceDatabase`.

    :param connection: the Airflow connection of the database
    """

    def __init__(self, connection: Connection | None) -> None:
        self._connection = require_connection(connection, "defaults.source")
        self._client: Any = None

    def read_catalog(self) -> Catalog:
        """Return all tables with their columns and primary keys; see :meth:`.SourceDatabase.read_catalog`."""
        with self._session("reading the catalog") as fetch:
            return [
                CatalogTable(
                    schema,
                    name,
                    f"{_reference(schema)}.{_reference(name)}",
                    tuple(columns),
                    tuple(key),
                    None if rows < 0 else int(rows),
                )
                for schema, name, rows, columns, key in fetch(_CATALOG, [])
            ]

    def count_new_records(self, tables: Sequence[TableProgress]) -> Mapping[str, int]:
        """Return the approximate number of new rows of each table that may have any, by the name of its pipeline.

        The tables are queried in chunks. See :meth:`.SourceDatabase.count_new_records`.
        """
        found: dict[str, int] = {}
        if tables:
            with self._session("looking for new rows") as fetch:
                counter = NewRowCounter(fetch)
                for start in range(0, len(tables), _CHUNK):
                    found |= self._count(counter, tables[start : start + _CHUNK])
        return found

    def _count(self, counter: NewRowCounter, tables: Sequence[TableProgress]) -> Mapping[str, int]:
        """Return the counts of a chunk of tables; if its query fails, halve the chunk and count each half.

        A table that is alone in its chunk, and whose query fails, gets 0.

        :param counter: runs the query
        :param tables: the tables of the chunk
        :raises psycopg2.Error: if the connection is lost
        """
        import psycopg2

        try:
            return counter.count(tables)
        except psycopg2.Error:
            if self._client.closed:
                raise
            if len(tables) == 1:
                return {tables[0].pipeline.name: 0}
            middle = len(tables) // 2
            return {**self._count(counter, tables[:middle]), **self._count(counter, tables[middle:])}

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @contextmanager
    def _session(self, operation: str) -> Iterator[Fetch]:
        import psycopg2

        if self._client is None:
            self._client = open_psycopg(self._connection, "ckpt-database", ErrorType.SOURCE, _SETTINGS)
        try:
            yield psycopg_fetch(self._client)
        except psycopg2.Error as error:
            lost = self._client.closed != 0
            self.close()
            raise to_exception(error_info(error, ErrorType.SOURCE, operation, lost=lost)) from error


def _reference(name: str) -> str:
    """Return a schema's or table's name as ``source.table`` has it: in double quotes if it contains a dot or quote."""
    return quote(name) if set('."') & set(name) else name
