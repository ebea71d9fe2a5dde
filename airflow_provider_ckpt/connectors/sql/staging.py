"""Name, find and drop staging tables beside a target: each holds the rows of one refresh until it is published.

The name of a staging table contains a digest of ledger and pipeline, by which a pipeline's own staging tables are
found, since SQLite has no comments on tables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import staging_name
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql.fence import owner_digest

if TYPE_CHECKING:
    import sqlalchemy as sa


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


def drop_table(connection: sa.Connection, schema: str, name: str) -> None:
    """Drop a staging table, if it exists.

    :param connection: an open connection
    :param schema: the target's schema
    :param name: name of the staging table
    """
    import sqlalchemy as sa
    from sqlalchemy.schema import DropTable

    place = sa.quoted_name(schema, quote=True) if schema else None
    table = sa.Table(sa.quoted_name(name, quote=True), sa.MetaData(), schema=place)
    connection.execute(DropTable(table, if_exists=True))
