"""Refuse a source table whose row security policies would hide rows, which would otherwise be missing unnoticed.

PostgreSQL applies the policies of a table to every user except its owner, superusers and roles with BYPASSRLS. Sessions
that read the source turn ``row_security`` off, so that a query which a policy would change fails instead, also below a
view and with a policy that is created during a run.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.core.errors import ConfigError

REFUSED = {"row_security": "off"}
"""Session setting that makes each query fail whose result a row security policy would change."""


def row_security_setting(source: PostgresSourceSection) -> dict[str, str]:
    """Return the session setting for ``source.row_security``: none for ``apply``, and :data:`REFUSED` for ``refuse``.

    :param source: the section ``source``
    """
    return {} if source.row_security == "apply" else REFUSED.copy()


def refuse_row_security(fetch: Fetch, table: Table, source: PostgresSourceSection, pipeline: str) -> None:
    """Raise an error if policies of the table apply to the connection's user and the pipeline does not allow that.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the source table
    :param source: the section ``source``
    :param pipeline: the pipeline's name, for the error
    :raises ConfigError: if rows may be hidden
    """
    if source.row_security == "apply":
        return
    ((active,),) = fetch("SELECT pg_catalog.row_security_active({0}::oid)", [table.oid])
    if active:
        raise ConfigError(
            f"row security policies of {table.label} apply to the user of connection {source.connection!r}, so rows "
            "may be hidden from it.",
            pipeline=pipeline,
            hint="ALTER ROLE … BYPASSRLS for it, or name a connection of the table's owner. If only the rows that the "
            "policies show are to be replicated, write source.row_security: apply.",
        )
