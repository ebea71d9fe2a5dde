"""Generate the SQL that replaces the target by a staging table: copy its properties, drop it, rename the staging table.

Some objects that depend on the target, such as views, cannot be moved to another table. They are obstacles: the swap is
refused if there is one. Everything else is carried over to the staging table, and compared before the target is
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_ckpt.connectors.postgres.client import literal, quote
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.postgres.table_definition import TableDefinition

_OBSTACLES = """
WITH target AS (
    SELECT c.*, n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = {0}::oid
), row_type (oid) AS (
    SELECT t.oid FROM pg_catalog.pg_type t, target WHERE t.oid = target.reltype
  UNION ALL
    SELECT t.typarray FROM pg_catalog.pg_type t, target WHERE t.oid = target.reltype
), own (classid, objid) AS (
    SELECT 'pg_catalog.pg_class'::regclass, {0}::oid
  UNION ALL SELECT 'pg_catalog.pg_class'::regclass, indexrelid FROM pg_catalog.pg_index WHERE indrelid = {0}::oid
  UNION ALL SELECT 'pg_catalog.pg_constraint'::regclass, oid FROM pg_catalog.pg_constraint WHERE conrelid = {0}::oid
  UNION ALL SELECT 'pg_catalog.pg_attrdef'::regclass, oid FROM pg_catalog.pg_attrdef WHERE adrelid = {0}::oid
  UNION ALL SELECT 'pg_catalog.pg_rewrite'::regclass, oid FROM pg_catalog.pg_rewrite WHERE ev_class = {0}::oid
  UNION ALL SELECT 'pg_catalog.pg_trigger'::regclass, oid FROM pg_catalog.pg_trigger WHERE tgrelid = {0}::oid
  UNION ALL SELECT 'pg_catalog.pg_policy'::regclass, oid FROM pg_catalog.pg_policy WHERE polrelid = {0}::oid
  UNION ALL SELECT 'pg_catalog.pg_statistic_ext'::regclass, oid FROM pg_catalog.pg_statistic_ext
            WHERE stxrelid = {0}::oid
)
SELECT DISTINCT CASE WHEN r.oid IS NULL THEN pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
                     ELSE pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, r.ev_class, 0) END
FROM pg_catalog.pg_depend d
LEFT JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
WHERE d.deptype = 'n'
  AND (d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = {0}::oid
       OR d.refclassid = 'pg_catalog.pg_type'::regclass AND d.refobjid IN (SELECT oid FROM row_type))
  AND NOT EXISTS (SELECT FROM own WHERE own.classid = d.classid AND own.objid = d.objid)
UNION ALL
SELECT 'foreign key ' || conname FROM pg_catalog.pg_constraint WHERE conrelid = {0}::oid AND contype = 'f'
UNION ALL
SELECT 'trigger ' || tgname FROM pg_catalog.pg_trigger WHERE tgrelid = {0}::oid AND NOT tgisinternal
UNION ALL
SELECT 'rule ' || rulename FROM pg_catalog.pg_rewrite WHERE ev_class = {0}::oid
UNION ALL
SELECT 'policy ' || polname FROM pg_catalog.pg_policy WHERE polrelid = {0}::oid
UNION ALL
SELECT 'row level security' FROM target WHERE relrowsecurity OR relforcerowsecurity
UNION ALL
SELECT 'statistics object ' || stxname FROM pg_catalog.pg_statistic_ext WHERE stxrelid = {0}::oid
UNION ALL
SELECT 'identity column ' || attname FROM pg_catalog.pg_attribute
WHERE attrelid = {0}::oid AND attidentity <> '' AND NOT attisdropped
UNION ALL
SELECT DISTINCT 'publication ' || p.pubname FROM pg_catalog.pg_publication_tables p, target
WHERE p.schemaname = target.nspname AND p.tablename = target.relname
UNION ALL
SELECT 'a subscription' FROM pg_catalog.pg_subscription_rel WHERE srrelid = {0}::oid
UNION ALL
SELECT 'partitions' FROM target WHERE relkind = 'p'
UNION ALL
SELECT 'parent table ' || pg_catalog.format('%I.%I', n.nspname, c.relname)
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhparent
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE i.inhrelid = {0}::oid
UNION ALL
SELECT 'composite type ' || pg_catalog.format_type(reloftype, NULL) FROM target WHERE reloftype <> 0
UNION ALL
SELECT 'extension ' || e.extname FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = {0}::oid AND d.deptype = 'e'
UNION ALL
SELECT DISTINCT 'security label of ' || provider FROM pg_catalog.pg_seclabel
WHERE classoid = 'pg_catalog.pg_class'::regclass AND objoid = {0}::oid
UNION ALL
SELECT 'invalid index ' || c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = {0}::oid AND NOT i.indisvalid
ORDER BY 1
"""
_CREATION = """
SELECT pg_catalog.format('CREATE TABLE %s (LIKE %I.%I INCLUDING ALL) USING %I', {1}::text, n.nspname, c.relname,
                         m.amname),
       (SELECT string_agg(name || ' = ' || pg_catalog.quote_literal(value), ', ') FROM (
            SELECT pg_catalog.quote_ident(option_name), option_value FROM pg_catalog.pg_options_to_table(c.reloptions)
          UNION ALL
            SELECT 'toast.' || pg_catalog.quote_ident(option_name), option_value
            FROM pg_catalog.pg_class t, pg_catalog.pg_options_to_table(t.reloptions) WHERE t.oid = c.reltoastrelid
        ) AS option (name, value)),
       s.spcname::text, pg_catalog.pg_get_userbyid(c.relowner)::text, c.relowner = r.oid
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_am m ON m.oid = c.relam LEFT JOIN pg_catalog.pg_tablespace s ON s.oid = c.reltablespace
JOIN pg_catalog.pg_roles r ON r.rolname = current_user
WHERE c.oid = {0}::oid
"""
_COLUMN_SETTINGS = """
SELECT pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', {1}::text, attname, attstattarget)
FROM pg_catalog.pg_attribute WHERE attrelid = {0}::oid AND attnum > 0 AND NOT attisdropped AND attstattarget >= 0
UNION ALL
SELECT pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I SET (%s)', {1}::text, attname, (
           SELECT string_agg(pg_catalog.format('%I = %L', option_name, option_value), ', ')
           FROM pg_catalog.pg_options_to_table(attoptions)))
FROM pg_catalog.pg_attribute WHERE attrelid = {0}::oid AND attnum > 0 AND NOT attisdropped AND attoptions IS NOT NULL
"""
_RIGHTS = """
SELECT DISTINCT 1, pg_catalog.format('REVOKE ALL ON %s FROM %s', {2}::text, CASE a.grantee WHEN 0 THEN 'PUBLIC'
           ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END)
FROM pg_catalog.pg_class c, pg_catalog.aclexplode(coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))) a
WHERE c.oid = {1}::oid
UNION ALL
SELECT 2, pg_catalog.format('GRANT %s ON %s TO %s%s', a.privilege_type, {2}::text, CASE a.grantee WHEN 0 THEN 'PUBLIC'
           ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END,
           CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
FROM pg_catalog.pg_class c, pg_catalog.aclexplode(coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))) a
WHERE c.oid = {0}::oid
UNION ALL
SELECT 2, pg_catalog.format('GRANT %s (%I) ON %s TO %s%s', a.privilege_type, c.attname, {2}::text,
           CASE a.grantee WHEN 0 THEN 'PUBLIC'
           ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END,
           CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
FROM pg_catalog.pg_attribute c, pg_catalog.aclexplode(c.attacl) a WHERE c.attrelid = {0}::oid AND NOT c.attisdropped
ORDER BY 1
"""
_SEQUENCES = """
SELECT pg_catalog.format('ALTER SEQUENCE %I.%I OWNED BY %s.%I', n.nspname, c.relname, {1}::text, a.attname)
FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind = 'S'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
  AND d.refobjid = {0}::oid AND d.deptype = 'a'
"""
_IDENTITIES = {"n": "NOTHING", "f": "FULL"}


def obstacles(fetch: Fetch, table: Table) -> list[str]:
    """Return the objects that would be lost or broken if another table replaced a table; empty if there are none.

    Each object is described by a phrase for a message, such as ``view newest`` or ``trigger audit``.

    :param fetch: runs a query and returns its rows
    :param table: the table
    """
    return [str(phrase) for (phrase,) in fetch(_OBSTACLES, [table.oid])]


def creation(fetch: Fetch, target: Table, staging: str, comment: str) -> list[str]:
    """Return the statements that create a staging table with the target's columns, constraints, indexes and storage.

    The table belongs to the target's owner. It is logged, unlike other staging tables, since it becomes the target.

    :param fetch: runs a query and returns its rows
    :param target: the target
    :param staging: schema and name of the staging table as SQL
    :param comment: comment on the staging table
    """
    [(create, options, tablespace, owner, is_owner)] = fetch(_CREATION, [target.oid, staging])
    create += f" WITH ({options})" if options else ""
    create += f" TABLESPACE {quote(tablespace)}" if tablespace else ""
    return [
        "SELECT pg_catalog.set_config('default_tablespace', '', true)",
        create,
        *(statement for (statement,) in fetch(_COLUMN_SETTINGS, [target.oid, staging])),
        f"COMMENT ON TABLE {staging} IS {literal(comment)}",
        *([] if is_owner else [f"ALTER TABLE {staging} OWNER TO {quote(owner)}"]),
    ]


def settings(
    fetch: Fetch, target: Table, staging: Table, of_target: TableDefinition, of_staging: TableDefinition
) -> list[str]:
    """Return the statements that give a staging table the grants, comment, replica identity and marks of the target.

    :param fetch: runs a query and returns its rows
    :param target: the target
    :param staging: the staging table
    :param of_target: definition of the target
    :param of_staging: definition of the staging table, which has the same shape
    """
    place = staging.sql
    named = dict(of_target.settings)
    statements = [statement for _, statement in fetch(_RIGHTS, [target.oid, staging.oid, place])]
    statements.append(f"COMMENT ON TABLE {place} IS {literal(named['the comment'] or None)}")
    if named["the replica identity"] in _IDENTITIES:
        statements.append(f"ALTER TABLE {place} REPLICA IDENTITY {_IDENTITIES[named['the replica identity']]}")
    for old, new in of_target.index_pairs(of_staging):
        if old.identifies:
            statements.append(f"ALTER TABLE {place} REPLICA IDENTITY USING INDEX {quote(new.name)}")
        if old.clustered:
            statements.append(f"ALTER TABLE {place} CLUSTER ON {quote(new.name)}")
        if old.comment is not None and new.constraint is not None:
            statements.append(f"COMMENT ON CONSTRAINT {quote(new.constraint)} ON {place} IS {literal(old.comment)}")
    return statements


def replacement(
    fetch: Fetch, target: Table, staging: Table, of_target: TableDefinition, of_staging: TableDefinition
) -> Sequence[str]:
    """Return the statements that drop the target and give its name, and those of its indexes, to the staging table.

    Before the target is dropped, its columns' own sequences become owned by the staging table's columns.

    :param fetch: runs a query and returns its rows
    :param target: the target
    :param staging: the staging table
    :param of_target: definition of the target
    :param of_staging: definition of the staging table, which is the same but for names of indexes
    """
    schema = quote(target.schema)
    renames = [
        f"ALTER TABLE {target.sql} RENAME CONSTRAINT {quote(new.constraint)} TO {quote(old.constraint)}"
        if old.constraint is not None and new.constraint is not None
        else f"ALTER INDEX {schema}.{quote(new.name)} RENAME TO {quote(old.name)}"
        for old, new in of_target.index_pairs(of_staging)
    ]
    return [
        *(statement for (statement,) in fetch(_SEQUENCES, [target.oid, staging.sql])),
        f"DROP TABLE {target.sql}",
        f"ALTER TABLE {staging.sql} RENAME TO {quote(target.name)}",
        *renames,
    ]
