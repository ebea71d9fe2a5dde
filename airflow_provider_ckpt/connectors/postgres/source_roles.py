"""Generate SQL that grants a role the right to read source tables and the server's history of timelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import literal, quote
from airflow_provider_ckpt.connectors.postgres.roles import anonymous_block, array_sql, create_roles, grant_database
from airflow_provider_ckpt.connectors.postgres.timelines import HISTORY_FUNCTION, READ_FILE, TIMELINE_ENDS

_GRANT_SEQUENCES = """
DECLARE owned record;
BEGIN
    FOR owned IN
        SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, s.relname) AS name
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace own ON own.oid = c.relnamespace
        JOIN pg_catalog.pg_depend d ON d.refobjid = c.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
            AND d.classid = 'pg_catalog.pg_class'::regclass
        JOIN pg_catalog.pg_class s ON s.oid = d.objid AND s.relkind = 'S'
        JOIN pg_catalog.pg_namespace n ON n.oid = s.relnamespace
        WHERE own.nspname = {schema} AND c.relname = ANY ({tables})
    LOOP
        EXECUTE pg_catalog.format('GRANT SELECT ON SEQUENCE %s TO %I', owned.name, {reader});
    END LOOP;
END"""
"""PL/pgSQL that grants a role the right to read the present values of the sequences that the source tables own."""


@dataclass(frozen=True)
class SourceRoles:
    """SQL script that grants a role the rights to read source tables and the history of the server's timelines.

    The history shows whether a failover lost data. The script creates a function that returns it, since an ordinary
    user cannot read it. Only a user who may call ``pg_read_file`` can create that function; run by any other user, the
    script raises a warning instead.

    :param schema: schema of the tables, in which the function is created
    :param reader: name of the role that reads the tables
    :param tables: names of the tables in the schema
    """

    schema: str
    reader: str
    tables: Sequence[str] = ()

    @property
    def sql(self) -> str:
        """SQL script that grants the reader its rights; it can be run again without harm."""
        schema, reader = quote(self.schema), quote(self.reader)
        function = f"{schema}.{HISTORY_FUNCTION}()"
        statements = (
            f"CREATE OR REPLACE FUNCTION {function} "
            "RETURNS TABLE (timeline pg_catalog.int8, switched pg_catalog.pg_lsn) "
            f"LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {literal(TIMELINE_ENDS)}"
        )
        guarded = (
            f"ALTER FUNCTION {function} OWNER TO CURRENT_USER",
            f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION {function} TO {reader}",
        )
        lines = [
            "BEGIN;",
            *create_roles((self.reader,)),
            *grant_database("CONNECT", (self.reader,)),
            f"GRANT USAGE ON SCHEMA {schema} TO {reader};",
            anonymous_block(
                f"IF pg_catalog.has_function_privilege({literal(READ_FILE)}, 'EXECUTE') THEN "
                + " ".join(f"EXECUTE {literal(statement)};" for statement in (statements, *guarded))
                + f" ELSE RAISE WARNING '% may not call {READ_FILE}, so the function that returns the history of "
                "timelines is not created: runs fail after every failover of this server', current_user; END IF;"
            ),
            *(f"GRANT SELECT ON {schema}.{quote(table)} TO {reader};" for table in self.tables),
        ]
        if self.tables:
            names = {"schema": literal(self.schema), "reader": literal(self.reader), "tables": array_sql(self.tables)}
            lines.append(f"DO {literal(_GRANT_SEQUENCES.format(**names))};")
        return "\n".join([*lines, "COMMIT;"]) + "\n"
