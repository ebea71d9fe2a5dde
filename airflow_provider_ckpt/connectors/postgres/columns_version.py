"""Detect that a table's columns were altered after a batch was planned, or while the batch's rows are being copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.client import literal, quote, split_table
from airflow_provider_ckpt.connectors.postgres.roles import anonymous_block
from airflow_provider_ckpt.connectors.postgres.table import psycopg_fetch
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.postgres.table import Table
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape

_COLUMNS_VERSION = """
(SELECT pg_catalog.string_agg(pg_catalog.format('%s/%s/%s', a.attrelid, a.attnum, a.xmin), ' ' ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a WHERE a.attrelid = pg_catalog.to_regclass({0}) AND a.attnum > 0)
"""


def columns_version_sql(name: str) -> str:
    """Return an SQL expression of a text that changes when a column of a table is altered or the table is recreated.

    :param name: name of the table, as ``source.table`` or ``sink.table`` of the pipeline gives it
    """
    schema, table = split_table(name)
    return _COLUMNS_VERSION.format(literal(f"{quote(schema)}.{quote(table)}" if schema else quote(table)))


def columns_version(session: Any, version_sql: str) -> str | None:
    """Return the version of a table's columns: a text that changes when one is altered; None if there is no such table.

    :param session: psycopg2 connection in autocommit mode
    :param version_sql: SQL expression that :func:`columns_version_sql` returned for the table
    """
    ((version,),) = psycopg_fetch(session)(f"SELECT {version_sql}", [])
    return None if version is None else str(version)


def unaltered_check_sql(session: Any, name: str) -> str:
    """Return a statement that fails if a column of the target table is altered after this call.

    :param session: psycopg2 connection in autocommit mode
    :param name: name of the table, as ``sink.table`` of the pipeline gives it
    """
    version_sql = columns_version_sql(name)
    version = literal(columns_version(session, version_sql))
    return anonymous_block(
        f"IF {version_sql} IS DISTINCT FROM {version} THEN RAISE EXCEPTION USING ERRCODE = '55000',"
        " MESSAGE = 'a column of the target was altered'; END IF;"
    )


def refuse_other_columns(table: Table, shape: RecordShape, batch: str) -> None:
    """Raise an error if the source table's columns differ from the schema version for which a batch was planned.

    Columns are compared by number too, since a name may belong to another column of the same type now.

    :param table: the source table as it is now
    :param shape: the columns of the schema version
    :param batch: the batch, for the message
    :raises SourceError: recoverable, if a column was dropped, or has another number or type now; the run then reads the
        columns again before it plans
    """
    now = {column.name: (column.number, column.exact_type_sql) for column in table.columns}
    other = [name for name, column in shape.source_columns.items() if now.get(name) != column]
    if other:
        raise altered_error(table.label, f"column {', '.join(other)}", batch)


def altered_error(table: str, columns: str, batch: str) -> SourceError:
    """Return the error of a batch that was not sent because source columns were altered after its planning.

    :param table: schema and name of the source table
    :param columns: phrase that names the columns, such as ``column price``
    :param batch: the batch
    """
    return SourceError(
        f"{columns} of {table} was altered after the batch was planned.",
        batch=batch,
        recoverable=True,
        is_outage=True,
        hint="The run looks at the columns again before it sends the batch.",
    )
