"""Generate SQL that creates three roles for a PostgreSQL ledger: one to migrate, one to run pipelines, one to read.

The runtime role has no DDL rights, cannot change the ledger's id and revision, and can only append to the audit log.
The database itself stores the time of an event and the database user in columns that the runtime role cannot write.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import literal, quote
from airflow_provider_ckpt.connectors.postgres.roles import (
    anonymous_block,
    create_roles,
    grant_database,
    in_this_database,
)
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger.store import tables

_MIGRATION_TABLES = (tables.VERSION_TABLE, tables.ledger.name)
"""Tables that only a migration writes, so that the runtime role has no right to change them."""


@dataclass(frozen=True)
class LedgerRoles:
    """Names of the roles of a ledger, and of the schema that contains its tables.

    :param schema: schema that only the ledger uses
    :param owner: role that migrates the ledger and deletes old rows
    :param runtime: role of workers, triggerers and users' commands
    :param reader: role of dashboards
    :raises ConfigError: if the schema is ``public`` or a system schema, or two of the roles are the same
    """

    schema: str
    owner: str
    runtime: str
    reader: str

    def __post_init__(self) -> None:
        if self.schema in ("public", "information_schema") or self.schema.startswith("pg_"):
            raise ConfigError(
                f"the ledger's roles need a schema of their own, and {self.schema!r} is shared.",
                hint="Name another schema; it is created if it does not exist.",
            )
        if len({self.owner, self.runtime, self.reader}) < 3:
            raise ConfigError("owner, runtime and reader must be three roles with different names.")

    @property
    def sql(self) -> str:
        """SQL script that creates the roles and grants their privileges.

        The script can be run repeatedly, and should be run after every migration, which may add tables.
        """
        schema, owner, runtime, reader = map(quote, (self.schema, self.owner, self.runtime, self.reader))
        new = f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema}"
        return "\n".join(
            [
                "BEGIN;",
                *create_roles((self.owner, self.runtime, self.reader)),
                *grant_database("CONNECT", (self.owner, self.runtime, self.reader)),
                f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {owner};",
                f"REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;",
                f"GRANT USAGE ON SCHEMA {schema} TO {runtime}, {reader};",
                *(self._search_path(name) for name in (self.owner, self.runtime, self.reader)),
                f"{new} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {runtime};",
                f"{new} GRANT USAGE ON SEQUENCES TO {runtime};",
                f"{new} GRANT SELECT ON TABLES TO {reader};",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {runtime};",
                f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {runtime};",
                f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader};",
                *(self._revoke(name, "INSERT, UPDATE, DELETE") for name in _MIGRATION_TABLES),
                self._revoke(tables.event.name, "INSERT, UPDATE, DELETE"),
                self._grant_event_insert(),
                "COMMIT;",
                "",
            ]
        )

    def _search_path(self, role: str) -> str:
        return in_this_database("ALTER ROLE %1$I IN DATABASE %2$I SET search_path = %3$I", role, self.schema)

    def _grant_event_insert(self) -> str:
        """Return SQL that lets the runtime role insert events, except for the columns that the database fills in."""
        name = f"{quote(self.schema)}.{quote(tables.event.name)}"
        given = ", ".join(quote(column.name) for column in tables.event.c if column.name not in tables.DATABASE_COLUMNS)
        return anonymous_block(
            f"IF pg_catalog.to_regclass({literal(name)}) IS NOT NULL "
            f"THEN GRANT INSERT ({given}) ON {name} TO {quote(self.runtime)}; END IF;"
        )

    def _revoke(self, table: str, rights: str) -> str:
        name = f"{quote(self.schema)}.{quote(table)}"
        return anonymous_block(
            f"IF pg_catalog.to_regclass({literal(name)}) IS NOT NULL "
            f"THEN REVOKE {rights} ON {name} FROM {quote(self.runtime)}; END IF;"
        )
