"""SQL that a database's owner runs once, so that pipelines write to it with no more rights than they need.

The sink's bookkeeping tables are made here, so the writing role may create nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.bookkeeping import (
    DEAD_LETTER,
    FENCE,
    LOCK,
    RECEIPT,
    REPLAY,
    Bookkeeping,
)
from airflow_provider_ckpt.connectors.postgres.common import literal, quote


@dataclass(frozen=True)
class SinkRoles:
    """Who may do what in a schema with target tables.

    :param schema: of the targets
    :param writer: the role of pipelines
    :param reader: a role that sees receipts and dead letters, for dashboards and people
    :param tables: the targets, by their names in the schema
    :param upsert: whether pipelines replace rows there
    """

    schema: str
    writer: str
    reader: str
    tables: Sequence[str] = ()
    upsert: bool = False

    @property
    def sql(self) -> str:
        """The script; it may be run again."""
        books = Bookkeeping(self.schema)
        here, writer, reader = quote(self.schema), quote(self.writer), quote(self.reader)
        changed = ", ".join(f"{here}.{quote(name)}" for name in (FENCE, RECEIPT, REPLAY))
        letters = f"{here}.{quote(DEAD_LETTER)}"
        wanted = "SELECT, INSERT, UPDATE" if self.upsert else "INSERT"
        lines = [
            "BEGIN;",
            *make_roles((self.writer, self.reader)),
            *grant_database("CONNECT, TEMPORARY", (self.writer,)),
            *grant_database("CONNECT", (self.reader,)),
            f"SELECT pg_catalog.pg_advisory_xact_lock({LOCK:d});",
            books.create.format(),
            f"GRANT USAGE ON SCHEMA {here} TO {writer}, {reader};",
            f"GRANT SELECT, INSERT, UPDATE ON {changed} TO {writer};",
            f"GRANT SELECT, INSERT ON {letters} TO {writer};",
            f"GRANT SELECT ON {changed}, {letters} TO {reader};",
            *(f"GRANT {wanted} ON {here}.{quote(table)} TO {writer};" for table in self.tables),
            "COMMIT;",
        ]
        return "\n".join(lines) + "\n"


def make_roles(names: Iterable[str]) -> list[str]:
    """Statements that make the roles that are not there yet; they may log in once they have a password."""
    return [
        block(
            f"IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {literal(name)}) "
            f"THEN CREATE ROLE {quote(name)} LOGIN; END IF;"
        )
        for name in names
    ]


def grant_database(rights: str, names: Iterable[str]) -> list[str]:
    """Statements that grant rights on the database that the script is run in."""
    return [in_this_database(f"GRANT {rights} ON DATABASE %2$I TO %1$I", name) for name in names]


def in_this_database(template: str, *names: str) -> str:
    """A statement whose template names the first of ``names`` as ``%1$I``, the database as ``%2$I``, and so on."""
    first, *others = map(literal, names)
    given = ", ".join([first, "pg_catalog.current_database()", *others])
    return block(f"EXECUTE pg_catalog.format({literal(template)}, {given});")


def block(body: str) -> str:
    """An anonymous block; quoted as a string, since a name may hold any dollar sign."""
    return f"DO {literal(f'BEGIN {body} END')};"
