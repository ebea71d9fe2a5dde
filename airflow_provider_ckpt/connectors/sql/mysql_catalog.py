"""Read the catalog of a MySQL or MariaDB server: all tables that the user may see, from ``information_schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.database.catalog import CatalogTable
from airflow_provider_ckpt.connectors.sql.names import quote
from airflow_provider_ckpt.connectors.staging_name import STAGING_PREFIX

if TYPE_CHECKING:
    import sqlalchemy as sa

_TABLES = f"""
SELECT table_schema, table_name, table_rows FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
  AND table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
  AND table_name NOT IN ('ckpt_sink_fence', 'ckpt_sink_receipt', 'ckpt_sink_dead_letter', 'ckpt_sink_replay')
  AND LEFT(table_name, {len(STAGING_PREFIX)}) <> '{STAGING_PREFIX}'
ORDER BY 1, 2
"""
_COLUMNS = """
SELECT table_schema, table_name, column_name FROM information_schema.columns
WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY 1, 2, ordinal_position
"""
_KEYS = """
SELECT table_schema, table_name, column_name FROM information_schema.statistics
WHERE index_name = 'PRIMARY' AND table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
ORDER BY 1, 2, seq_in_index
"""


def read_catalog(connection: sa.Connection) -> list[CatalogTable]:
    """Return all tables with their columns, their primary keys and the server's estimates of their numbers of rows.

    Views, the server's own tables, and the package's bookkeeping and staging tables are left out.

    :param connection: an open connection
    """
    columns, keys = _by_table(connection, _COLUMNS), _by_table(connection, _KEYS)
    return [
        CatalogTable(
            schema,
            name,
            f"{_reference(schema)}.{_reference(name)}",
            tuple(columns.get((schema, name), ())),
            tuple(keys.get((schema, name), ())),
            None if rows is None else int(rows),
        )
        for schema, name, rows in connection.exec_driver_sql(_TABLES)
    ]


def _by_table(connection: sa.Connection, query: str) -> dict[tuple[str, str], list[str]]:
    """Return the column names that a query yields, by schema and table, in the order of the query.

    :param connection: an open connection
    :param query: query of schema, table and column
    """
    found: dict[tuple[str, str], list[str]] = {}
    for schema, table, column in connection.exec_driver_sql(query):
        found.setdefault((schema, table), []).append(column)
    return found


def _reference(name: str) -> str:
    """Return a schema's or table's name as ``source.table`` has it: quoted if it has a dot or a quotation mark."""
    return quote(name) if set('."`') & set(name) else name
