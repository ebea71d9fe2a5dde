"""Make each commit of the sink durable, and refuse unlogged, temporary and foreign targets.

``synchronous_commit`` is set in each transaction, because behind a connection pooler every transaction may run in
another session.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)

SET_DURABLE_COMMIT = (
    "pg_catalog.set_config('synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit')"
    " WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
)
"""Function call in SQL after which the transaction's COMMIT returns only once it is flushed to disk.

If the server has synchronous standbys, it is flushed there, too.
"""

_UNDURABLE_PARTS = """
WITH RECURSIVE tree (oid) AS (
    SELECT {0}::oid
  UNION
    SELECT i.inhrelid FROM pg_catalog.pg_inherits i
    JOIN tree ON i.inhparent = tree.oid JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition
)
SELECT n.nspname::text, c.relname::text, c.relpersistence::text, c.relkind::text
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p' AND (c.relpersistence <> 'p' OR c.relkind = 'f')
ORDER BY 1, 2
"""
_UNLOGGED_IN_SCHEMA = """
SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {0}::text AND c.relname = ANY ({1}::text[]) AND c.relpersistence <> 'p' ORDER BY 1
"""
_RISKY_SETTINGS = """
SELECT name FROM unnest('{{fsync,full_page_writes}}'::text[]) AS name
WHERE pg_catalog.current_setting(name) = 'off'
"""


def with_durable_commit(statement: str) -> str:
    """Return a statement with a prefix that makes its commit durable, for a connection in autocommit mode.

    Both statements go to the server in one message, so they are one transaction.
    """
    return f"SELECT {SET_DURABLE_COMMIT}; {statement}"


def refuse_undurable_target(fetch: Fetch, table: Table, pipeline: Pipeline) -> None:
    """Raise ConfigError if the target or one of its partitions is unlogged, temporary or a foreign table.

    With ``delivery: at_most_once`` rows may be lost, so nothing is refused.

    :param fetch: runs a query and returns its rows
    :param table: the target
    :param pipeline: the pipeline
    :raises ConfigError: with the names of the tables, and how to make them durable
    """
    if pipeline.delivery == "at_most_once":
        return
    leaves = [
        (f"{quote(schema)}.{quote(name)}", kind) for schema, name, _, kind in fetch(_UNDURABLE_PARTS, [table.oid])
    ]
    foreign = [name for name, kind in leaves if kind == "f"]
    if foreign:
        raise ConfigError(
            f"target {table.label} has partitions on other servers ({', '.join(foreign)}), whose commits are not part "
            "of the transaction that claims the receipt.",
            pipeline=pipeline.name,
            hint="Detach them, or name a partitioned table without foreign tables.",
        )
    if leaves:
        names = [name for name, _ in leaves]
        raise ConfigError(
            f"target {table.label} is not durable: {', '.join(names)} is unlogged or temporary, so a crash of the "
            "server empties it, while the receipts of its rows remain.",
            pipeline=pipeline.name,
            hint=f"{_set_logged(names)} Or write delivery: at_most_once.",
        )


def refuse_unlogged_tables(fetch: Fetch, schema: str, tables: Sequence[str], pipeline: str) -> None:
    """Raise ConfigError if one of the bookkeeping or dead letter tables is unlogged, so that a crash would empty it.

    :param fetch: runs a query
    :param schema: schema of the tables
    :param tables: names of the tables; tables that do not exist are ignored
    :param pipeline: the pipeline's name, for the message
    :raises ConfigError: with the names of the tables, and how to make them durable
    """
    names = [f"{quote(schema)}.{quote(name)}" for (name,) in fetch(_UNLOGGED_IN_SCHEMA, [schema, list(tables)])]
    if names:
        raise ConfigError(
            f"{', '.join(names)} is unlogged: a crash of the server empties it, and what was delivered is sent again.",
            pipeline=pipeline,
            hint=_set_logged(names),
        )


def warn_of_risky_server(fetch: Fetch, connection: str, pipeline: str) -> None:
    """Log a warning for each setting by which the server may lose committed transactions when its machine crashes.

    :param fetch: runs a query
    :param connection: id of the Airflow connection, for the message
    :param pipeline: the pipeline's name, for the message
    """
    for (name,) in fetch(_RISKY_SETTINGS, []):
        log.warning(
            "pipeline %s: the server of connection %r runs with %s = off: when its machine crashes, rows may be "
            "lost. Set %s = on.",
            pipeline,
            connection,
            name,
            name,
        )


def _set_logged(names: Sequence[str]) -> str:
    return " ".join(f"ALTER TABLE {name} SET LOGGED;" for name in names)
