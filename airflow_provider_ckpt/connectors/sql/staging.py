"""Name, find and drop staging tables beside a target: each holds the rows of one refresh until it is published.

The name of a staging table contains a digest of ledger and pipeline, by which a pipeline's own staging tables are
found, since SQLite has no comments on tables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import staging_name
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql.dialect import SqlDialect
from airflow_provider_ckpt.connectors.sql.fence import owner_digest, session_mark
from airflow_provider_ckpt.core.errors import SinkError

if TYPE_CHECKING:
    import sqlalchemy as sa

LOCKED = "55P03"
"""SQLSTATE of a statement that has waited in vain for a lock."""


def staging_table(table: str, generation: int, context: SinkContext) -> str:
    """Return the name of the staging table of a refresh.

    :param table: name of the target without its schema, as the pipeline gives it
    :param generation: generation of the refresh
    :param context: ids of the ledger and the pipeline
    """
    return staging_name.staging_name(f"{owner_digest(context)}_{table}", generation)


def own_staging_tables(connection: sa.Connection, schema: str, context: SinkContext) -> list[str]:
    """Return the names of the staging tables that a pipeline's refreshes have left in a schema.

    :param connection: an open connection
    :param schema: the target's schema
    :param context: ids of the ledger and the pipeline
    """
    import sqlalchemy as sa

    own = re.compile(rf"{staging_name.STAGING_PREFIX}\d+_{owner_digest(context)}_.*", re.DOTALL)
    return [name for name in sa.inspect(connection).get_table_names(schema or None) if own.fullmatch(name)]


def drop_table(connection: sa.Connection, dialect: SqlDialect, schema: str, name: str, context: SinkContext) -> None:
    """Drop a staging table, if it exists; wait only for a limited time for others that use it.

    :param connection: an open connection
    :param dialect: the database's dialect
    :param schema: the target's schema
    :param name: name of the staging table
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :raises SinkError: if others still use the table; the error names their sessions, if the server does
    """
    import sqlalchemy as sa
    from sqlalchemy.schema import DropTable

    place = sa.quoted_name(schema, quote=True) if schema else None
    table = sa.Table(sa.quoted_name(name, quote=True), sa.MetaData(), schema=place)
    dialect.limit_ddl_wait(connection)
    try:
        connection.execute(DropTable(table, if_exists=True))
    except sa.exc.DBAPIError as error:
        state = dialect.classify(error).state
        if state != LOCKED or error.connection_invalidated:
            raise
        holders = dialect.lock_holders(connection, schema, name, session_mark(context, context.epoch))
        sessions = f": {', '.join(holders)}" if holders else ""
        raise SinkError(
            f"staging table {schema}.{name} cannot be dropped, because open transactions use it{sessions}.",
            pipeline=context.pipeline,
            sqlstate=LOCKED,
            recoverable=True,
            hint="Have them commit, or end their sessions; then run again. No rows were lost.",
        ) from error
