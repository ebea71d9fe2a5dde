"""Generate the SQL script that a database's owner runs to grant pipelines only the rights that they need.

The script creates the sink's bookkeeping tables, so the writing role needs no right to create tables, except for
targets that runs create and for the staging tables of a full refresh.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import literal, quote
from airflow_provider_ckpt.connectors.postgres.receipts import (
    ALL_TABLES,
    CREATION_LOCK,
    DEAD_LETTER,
    FENCE,
    RECEIPT,
    REPLAY,
    BookkeepingTables,
)
from airflow_provider_ckpt.core.errors import ConfigError

_REVOKE_WRITES = """
DECLARE granted record;
BEGIN
    FOR granted IN
        SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
               bool_or(a.privilege_type IN ('UPDATE', 'DELETE')) AS replaced
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
             pg_catalog.aclexplode(c.relacl) AS a JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
        WHERE n.nspname = {schema} AND r.rolname = {writer} AND c.relkind IN ('r', 'p')
          AND NOT c.relname = ANY ({own}) AND NOT (c.relowner = r.oid AND {creates})
        GROUP BY n.nspname, c.relname HAVING bool_or(a.privilege_type = 'INSERT')
    LOOP
        EXECUTE pg_catalog.format('REVOKE INSERT, UPDATE, DELETE ON %s FROM %I', granted.name, {writer});
        IF granted.replaced THEN
            EXECUTE pg_catalog.format('REVOKE SELECT ON %s FROM %I', granted.name, {writer});
        END IF;
    END LOOP;
END"""
"""PL/pgSQL that revokes the writer's rights to write to tables of the schema.

Where the writer could replace rows, the right to read is revoked as well. A writer that may create tables keeps its
rights to those that it owns: targets and staging tables that runs created, which no option names.
"""

_CHANGE_OWNER = """
DECLARE owned record;
BEGIN
    FOR owned IN
        SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema} AND c.relname = ANY ({own}) AND c.relkind = 'r'
          AND pg_catalog.pg_has_role({writer}, c.relowner, 'USAGE')
          AND c.relowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
    LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s OWNER TO %I', owned.name, current_user);
    END LOOP;
    IF (SELECT rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE rolname = {writer}) THEN
        RAISE WARNING 'role % bypasses row level security: it can change the bookkeeping of other pipelines', {writer};
    END IF;
END"""
"""PL/pgSQL that takes the ownership of bookkeeping tables from the writer, and gives it to the current user.

Row level security does not apply to a table's owner.
"""


@dataclass(frozen=True)
class SinkRoles:
    """SQL script that grants a writing and a reading role their rights in a schema with target tables.

    The bookkeeping of all pipelines is in the same tables; policies of row level security let a writer see and write
    only the rows of its own pipelines. A script for fewer tables or pipelines revokes the rights to the others; a
    script for none revokes all.

    :param schema: schema of the targets
    :param writer: name of the role as which pipelines run
    :param reader: name of a role that may read receipts and dead letters, for dashboards and users
    :param tables: names of the targets in the schema
    :param upsert: whether pipelines replace rows in the targets
    :param replace: whether pipelines replace all rows of the targets, by way of staging tables that they create
    :param create: whether pipelines create missing targets
    :param pipelines: names of the pipelines that run as the writer; ``shop.*`` stands for all pipelines, present and
        future, whose names begin with ``shop.``
    :raises ConfigError: if tables are given, but no pipelines, or a name has a ``*`` before its end
    """

    schema: str
    writer: str
    reader: str
    tables: Sequence[str] = ()
    upsert: bool = False
    pipelines: Sequence[str] = ()
    replace: bool = False
    create: bool = False

    def __post_init__(self) -> None:
        if self.tables and not self.pipelines:
            raise ConfigError(
                f"no pipeline is named that runs as {self.writer}, so it could claim no receipt.",
                hint="Give --pipeline NAME for each.",
            )
        for name in self.pipelines:
            if "*" in name[:-1]:
                raise ConfigError(
                    f"{name!r} is not the name of a pipeline, nor the beginning of names.",
                    hint="Write * at the end only, as in --pipeline 'shop.*'.",
                )

    @property
    def sql(self) -> str:
        """SQL script that grants the writer and the reader their rights; it can be run again without harm."""
        bookkeeping = BookkeepingTables(self.schema)
        schema, writer, reader = quote(self.schema), quote(self.writer), quote(self.reader)
        changed = ", ".join(f"{schema}.{quote(name)}" for name in (FENCE, RECEIPT, REPLAY))
        dead_letters = f"{schema}.{quote(DEAD_LETTER)}"
        wanted = ", ".join(
            ["INSERT"]
            + ["SELECT"] * (self.upsert or self.replace)
            + ["UPDATE"] * self.upsert
            + ["DELETE"] * self.replace
        )
        lines = [
            "BEGIN;",
            *create_roles((self.writer, self.reader)),
            *grant_database("CONNECT, TEMPORARY", (self.writer,)),
            *grant_database("CONNECT", (self.reader,)),
            f"SELECT pg_catalog.pg_advisory_xact_lock({CREATION_LOCK:d});",
            bookkeeping.create.format(),
            self._block(_CHANGE_OWNER),
            self._block(_REVOKE_WRITES),
            f"REVOKE ALL ON {changed}, {dead_letters} FROM {writer}, {reader};",
            *(line for name in ALL_TABLES for line in self._policies(f"{schema}.{quote(name)}")),
            f"GRANT USAGE ON SCHEMA {schema} TO {writer}, {reader};",
            f"GRANT CREATE ON SCHEMA {schema} TO {writer};"
            if self._creates
            else f"REVOKE CREATE ON SCHEMA {schema} FROM {writer};",
            f"GRANT SELECT ON {changed}, {dead_letters} TO {reader};",
        ]
        if self.pipelines:
            lines += [
                f"GRANT SELECT, INSERT, UPDATE ON {changed} TO {writer};",
                f"GRANT SELECT, INSERT ON {dead_letters} TO {writer};",
                *(f"GRANT {wanted} ON {schema}.{quote(table)} TO {writer};" for table in self.tables),
            ]
        return "\n".join([*lines, "COMMIT;"]) + "\n"

    @property
    def _creates(self) -> bool:
        """True if the writer may create tables."""
        return (self.create or self.replace) and bool(self.pipelines)

    def _policies(self, table: str) -> list[str]:
        """Return the statements that let the writer access its pipelines' rows of a table, and the reader all rows.

        :param table: the bookkeeping table as SQL
        """
        writing, reading = (quote(f"ckpt_{_digest(role)}") for role in (self.writer, self.reader))
        own = self._own_rows()
        lines = [
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;",
            f"DROP POLICY IF EXISTS {writing} ON {table};",
            f"DROP POLICY IF EXISTS {reading} ON {table};",
            f"CREATE POLICY {reading} ON {table} FOR SELECT TO {quote(self.reader)} USING (true);",
        ]
        if self.pipelines:
            lines.append(
                f"CREATE POLICY {writing} ON {table} TO {quote(self.writer)} USING ({own}) WITH CHECK ({own});"
            )
        return lines

    def _own_rows(self) -> str:
        """Return the SQL condition for the bookkeeping rows that belong to the writer's pipelines."""
        names = [name for name in self.pipelines if not name.endswith("*")]
        beginnings = [name.removesuffix("*") for name in self.pipelines if name.endswith("*")]
        return " OR ".join(
            [f"pipeline = ANY ({array_sql(names)})"]
            + [f"pg_catalog.starts_with(pipeline, {literal(beginning)})" for beginning in beginnings]
        )

    def _block(self, body: str) -> str:
        names = {
            "schema": literal(self.schema),
            "writer": literal(self.writer),
            "own": array_sql(ALL_TABLES),
            "creates": "true" if self._creates else "false",
        }
        return f"DO {literal(body.format(**names))};"


def array_sql(names: Iterable[str]) -> str:
    """Return an SQL expression of an array that consists of the given texts.

    :param names: the texts
    """
    return f"ARRAY[{', '.join(map(literal, names))}]::text[]"


def _digest(role: str) -> str:
    return hashlib.sha256(role.encode()).hexdigest()[:16]


def create_roles(names: Iterable[str]) -> list[str]:
    """Return SQL statements that create those of the given roles that do not exist.

    A new role can log in once it has a password.

    :param names: names of the roles
    """
    return [
        anonymous_block(
            f"IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {literal(name)}) "
            f"THEN CREATE ROLE {quote(name)} LOGIN; END IF;"
        )
        for name in names
    ]


def grant_database(rights: str, names: Iterable[str]) -> list[str]:
    """Return SQL statements that grant rights on the current database.

    :param rights: the rights, such as ``CONNECT, TEMPORARY``
    :param names: names of the roles
    """
    return [in_this_database(f"GRANT {rights} ON DATABASE %2$I TO %1$I", name) for name in names]


def in_this_database(template: str, *names: str) -> str:
    """Return an SQL statement that inserts names into a template and executes the result.

    :param template: statement for ``format()``, with ``%1$I`` for the first name, ``%2$I`` for the current database,
        and ``%3$I`` … for the other names
    :param names: the names
    """
    first, *others = map(literal, names)
    given = ", ".join([first, "pg_catalog.current_database()", *others])
    return anonymous_block(f"EXECUTE pg_catalog.format({literal(template)}, {given});")


def anonymous_block(body: str) -> str:
    """Return a DO statement that executes a PL/pgSQL body.

    The body is quoted as a string constant, since names in it may contain dollar quotes.

    :param body: PL/pgSQL statements without BEGIN and END
    """
    return f"DO {literal(f'BEGIN {body} END')};"
