"""Notices that a target was truncated although its bookkeeping stands.

With each new fence, and when a run ends or fails that delivered something, the sink keeps a witness: the file of every
table that holds rows, its size, hashes of some rows. TRUNCATE gives a table another file, and so do VACUUM FULL,
CLUSTER and an ALTER TABLE that rewrites it, but those keep the rows. So a table with another file is set back if it is
empty now, or if none of the rows of the witness is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.connectors.postgres.common import quote
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table

_SAMPLED_ROWS = 20
_FILES = """
WITH RECURSIVE tree (oid) AS (
    SELECT {0}::oid
  UNION
    SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT c.oid::bigint, pg_catalog.format('%I.%I', n.nspname, c.relname),
       pg_catalog.pg_relation_filenode(c.oid)::bigint, pg_catalog.pg_relation_size(c.oid)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r'
ORDER BY c.oid
"""
_PRIMARY_KEY = """
SELECT a.attname::text FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
WHERE i.indrelid = {0}::oid AND i.indisprimary
"""
_READABLE = """
SELECT pg_catalog.has_table_privilege({0}::oid, 'SELECT') AND NOT pg_catalog.row_security_active({0}::oid)
"""
_PLACES = """
SELECT pg_catalog.format('(%s,%s)', page, line)
FROM (SELECT {0}::bigint / pg_catalog.current_setting('block_size')::bigint) AS size (pages),
     unnest(ARRAY[0, pages / 2, pages - 1]) AS page, generate_series(1, 40) AS line
WHERE page >= 0
"""
"""Places of rows on the first, the middle and the last page, which are read without a scan."""

_TEXT_FORMS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
_AS_TEXT = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in _TEXT_FORMS.items()
)
"""Statement by which a row has the same text, and so the same hash, even where a pooler does not pass the session's own
settings on. It goes to the server in one message with the query, so both are one transaction, and nothing stays."""


def take(fetch: Fetch, table: Table, key: Sequence[str]) -> dict[str, Any]:
    """A witness of the target as it is now, as a JSON-ready dict.

    :param key: the key columns of an upsert; empty for append. Others may change; without any key all columns are taken
    """
    files = fetch(_FILES, [table.oid])
    stable = key or [name for (name,) in fetch(_PRIMARY_KEY, [table.oid])]
    columns = [name for name, column in table.by_name.items() if name in stable or not (stable or column.generated)]
    return {
        "files": {str(oid): [file, size] for oid, _, file, size in files},
        "columns": columns,
        "rows": _sample(fetch, table, columns, files[0][3]) if len(files) == 1 else [],
    }


def set_back(fetch: Fetch, table: Table, witness: Mapping[str, Any], *, delivered: bool) -> str | None:
    """Return a sentence with the evidence that delivered rows are gone; None if there is none.

    :param fetch: runs a query
    :param table: the target
    :param witness: what :func:`take` returned
    :param delivered: whether the sink has receipts of rows, so that the target cannot always have been empty
    """
    files = fetch(_FILES, [table.oid])
    changed = [
        (name, size, witness["files"][str(oid)][1])
        for oid, name, file, size in files
        if str(oid) in witness["files"] and witness["files"][str(oid)][0] != file
    ]
    if not changed:
        return None
    if delivered and not any(size for _, _, _, size in files):
        return f"target {table.label} was truncated: it is empty and in another file than when a run last looked"
    emptied = [name for name, size, before in changed if before and not size]
    if emptied:
        return f"{', '.join(emptied)} of target {table.label} was truncated since a run last looked"
    if len(files) == 1 and witness["rows"] and _is_gone(fetch, table, witness):
        return (
            f"target {table.label} is in another file than when a run last looked, and none of "
            f"{len(witness['rows'])} rows that were looked at then is there: it was truncated and filled anew"
        )
    return None


def _sample(fetch: Fetch, table: Table, columns: Sequence[str], size: int) -> list[int]:
    if not columns or not size or not fetch(_READABLE, [table.oid])[0][0]:
        return []
    places = [place for (place,) in fetch(_PLACES, [size])]
    found = fetch(f"{_AS_TEXT}; SELECT {_hash(columns)} FROM {_sql(table)} WHERE ctid = ANY ({{0}}::tid[])", [places])
    step = max(1, len(found) // _SAMPLED_ROWS)
    return [value for (value,) in found[::step]]


def _is_gone(fetch: Fetch, table: Table, witness: Mapping[str, Any]) -> bool:
    columns = witness["columns"]
    if not set(columns) <= set(table.by_name) or not fetch(_READABLE, [table.oid])[0][0]:
        return False
    there = f"{_AS_TEXT}; SELECT EXISTS (SELECT FROM {_sql(table)} WHERE {_hash(columns)} = ANY ({{0}}::bigint[]))"
    return not fetch(there, [list(witness["rows"])])[0][0]


def _hash(columns: Sequence[str]) -> str:
    names = ", ".join(map(quote, columns)).replace("{", "{{").replace("}", "}}")
    return f"pg_catalog.hashtextextended(ROW({names})::text, 0)"


def _sql(table: Table) -> str:
    return table.sql.replace("{", "{{").replace("}", "}}")
