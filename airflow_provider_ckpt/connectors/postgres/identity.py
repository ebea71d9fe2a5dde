"""Identify a PostgreSQL table uniquely among all servers."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.postgres.table import Fetch

_DATABASE = """
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())::text || '/' || d.oid
FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
"""
_TREE = """
WITH RECURSIVE tree(oid) AS (
    SELECT {0}::oid UNION SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
) SELECT oid::bigint FROM tree
"""


def table_identity(fetch: Fetch, oid: int) -> str:
    """Return ``<system identifier>/<database oid>/<table oid>``.

    :param fetch: runs a statement in the table's database
    :param oid: the table's oid
    """
    return f"{_database_identity(fetch)}/{oid}"


def tree_identities(fetch: Fetch, oid: int) -> frozenset[str]:
    """Return the identities of a table and of all tables whose rows are among its rows: partitions and children.

    :param fetch: runs a statement in the table's database
    :param oid: the table's oid
    """
    database = _database_identity(fetch)
    return frozenset(f"{database}/{found}" for (found,) in fetch(_TREE, [oid]))


def _database_identity(fetch: Fetch) -> str:
    [(found,)] = fetch(_DATABASE, [])
    return str(found)
