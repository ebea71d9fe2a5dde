"""Identity of a PostgreSQL table, which reveals that the table was dropped and recreated under the same name."""

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
_PARTS = ("system identifier", "database oid", "table oid")
_REASONS = {
    "system identifier": "pg_upgrade, or a dump or logical replication into a new server, gives it another",
    "database oid": "a database that was created and filled again has another",
    "table oid": "a table that was dropped and created again has another",
}


def table_identity(fetch: Fetch, oid: int) -> str:
    """Return the identity of a table: ``<system identifier>/<database oid>/<table oid>``.

    :param fetch: runs a statement in the table's database and returns its rows
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


def describe_difference(before: str, now: str) -> str | None:
    """Return the part of an error message that tells how two identities of a target differ, with the usual reason.

    For example: ``the target is not the one that was written: its table oid was 16384 and is 16399 …``. Return None if
    nothing differs, or if a text is no identity.

    :param before: earlier result of :func:`table_identity`
    :param now: result of :func:`table_identity` now
    """
    old, new = before.split("/"), now.split("/")
    if len(old) != len(_PARTS) or len(new) != len(_PARTS):
        return None
    differing = [(name, was, found) for name, was, found in zip(_PARTS, old, new, strict=True) if was != found]
    if not differing:
        return None
    parts = ", ".join(f"its {name} was {was} and is {found}" for name, was, found in differing)
    same = [name for name, was, found in zip(_PARTS, old, new, strict=True) if was == found]
    rest = f"; {' and '.join(same)} {'are as they were' if len(same) > 1 else 'is as it was'}" if same else ""
    return f"the target is not the one that was written: {parts}{rest} ({_REASONS[differing[0][0]]})"


def _database_identity(fetch: Fetch) -> str:
    [(found,)] = fetch(_DATABASE, [])
    return str(found)
