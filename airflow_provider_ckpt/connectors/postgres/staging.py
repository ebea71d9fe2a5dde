"""Staging tables beside a target: each holds the rows of one refresh until the refresh is published.

A staging table is unlogged: if the server crashes, it is empty, which publishing detects by the counts in the receipts.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.postgres.client import literal, quote, split_table
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.staging_name import STAGING_PREFIX, staging_name

_OWN = f"""
SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {{0}}::text AND c.relkind = 'r' AND left(c.relname, {len(STAGING_PREFIX)}) = '{STAGING_PREFIX}'
  AND pg_catalog.obj_description(c.oid, 'pg_class') = {{1}}::text
"""


def staging_place(place: str, generation: int) -> str:
    """Return the quoted name of the staging table of a refresh, with the target's schema if ``place`` has one.

    :param place: name of the target as the pipeline gives it
    :param generation: the generation
    """
    schema, table = split_table(place)
    name = quote(staging_name(table, generation))
    return f"{quote(schema)}.{name}" if schema else name


def staging_sql(target: Table, generation: int) -> str:
    """Return schema and name of the staging table of a refresh as SQL.

    :param target: the target
    :param generation: generation of the refresh
    """
    return f"{quote(target.schema)}.{quote(staging_name(target.name, generation))}"


def own_staging_tables(fetch: Fetch, target: Table, context: SinkContext) -> list[str]:
    """Return schema and name, as SQL, of each staging table of a pipeline that exists beside a target.

    :param fetch: runs a query and returns its rows
    :param target: the target
    :param context: ids of the ledger and the pipeline
    """
    found = fetch(_OWN, [target.schema, staging_owner(context)])
    return [f"{quote(target.schema)}.{quote(name)}" for (name,) in found]


def create_staging(target: Table, generation: int, context: SinkContext) -> str:
    """Return the statements that create the staging table of a refresh; its comment names the pipeline that owns it.

    :param target: the target
    :param generation: the generation
    :param context: ids of the ledger and the pipeline
    """
    name = staging_sql(target, generation)
    return (
        f"CREATE UNLOGGED TABLE {name} (LIKE {target.sql} INCLUDING ALL);"
        f" COMMENT ON TABLE {name} IS {literal(staging_owner(context))}"
    )


def staging_owner(context: SinkContext) -> str:
    """Return the comment on a staging table, which names the pipeline that owns it.

    :param context: ids of the ledger and the pipeline
    """
    return f"staging of ckpt pipeline {context.pipeline}, ledger {context.ledger}"
