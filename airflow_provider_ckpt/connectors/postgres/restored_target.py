"""Detect that a target was truncated, or restored without its newest rows, while its receipts remain.

With each new fence, and when a run that delivered something ends or fails, the sink stores a snapshot of the target:
the file, size and columns of every table that contains rows (the target, its partitions and children), and for a sample
of rows a hash and the transaction that wrote them. TRUNCATE gives a table a new file, and so do VACUUM FULL, CLUSTER
and an ALTER TABLE that rewrites it, but those preserve the rows. So a table with a new file has lost rows if it is
empty now, or if the sampled rows are absent; the same applies to a partition that replaced another.
:func:`_describe_missing` has the exact rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table

_SAMPLED_ROWS = 200
"""Number of rows to sample in all tables together: half of them the newest, half spread over the whole table."""

_MIN_SAMPLED_ROWS = 20
"""Smallest number of rows to sample in each table."""

_SAMPLED_PAGES = 60
"""Number of pages that are read in all tables together to sample rows."""

_MIN_SAMPLED_PAGES = 6
"""Smallest number of pages that are read in each table; a third of them are the table's last pages."""

_SAMPLED_TABLES = 50
"""Greatest number of tables in which rows are sampled; if the target has more, the largest are sampled."""

_MAX_NAMED = 3
"""Greatest number of tables that a message names."""

_TEXT_FORMS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
_SET_TEXT_FORMS = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in _TEXT_FORMS.items()
)
"""Statement that makes a row's text, and so its hash, independent of the session's settings.

A connection pooler may reset these settings. The statement is sent in one message with the query, so both are one
transaction, and the settings end with it.
"""

_PARTS = f"""
{_SET_TEXT_FORMS};
WITH RECURSIVE tree (oid, place) AS (
    SELECT {{0}}::oid, ''::text COLLATE "C"
  UNION
    SELECT i.inhrelid,
           (tree.place || '/' || coalesce(pg_catalog.pg_get_expr(c.relpartbound, c.oid), c.relname::text)) COLLATE "C"
    FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
)
SELECT DISTINCT ON (c.oid) c.oid::bigint, pg_catalog.format('%I.%I', n.nspname, c.relname), tree.place,
       pg_catalog.pg_relation_filenode(c.oid)::bigint, pg_catalog.pg_relation_size(c.oid),
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
           AND NOT pg_catalog.row_security_active(c.oid),
       (SELECT pg_catalog.string_agg(pg_catalog.format('%s:%s:%s', a.attnum, a.atttypid, a.atttypmod), ' '
                                     ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r'
ORDER BY c.oid, tree.place
"""
_PRIMARY_KEY = """
SELECT a.attname::text FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
WHERE i.indrelid = {0}::oid AND i.indisprimary
"""
_ROWS = """
SELECT {oid}::bigint, {hash}, ckpt_xmin::text::bigint, ckpt_age <= {half}
FROM (
    SELECT {columns}, xmin AS ckpt_xmin, row_number() OVER (ORDER BY pg_catalog.age(xmin), ctid DESC) AS ckpt_age,
           row_number() OVER (ORDER BY ctid DESC) - 1 AS ckpt_place, count(*) OVER () AS ckpt_all
    FROM ONLY {name} WHERE ctid = ANY (ARRAY(
        SELECT pg_catalog.format('(%s,%s)', page, line)::tid
        FROM (SELECT pg_catalog.current_setting('block_size')::bigint) AS block (bytes),
             LATERAL (SELECT {size} / bytes - 1) AS final (page_number),
             LATERAL (
                 SELECT page_number * i / {spread} FROM generate_series(0, {spread}) AS i
                 UNION SELECT page_number - i FROM generate_series(1, {final}) AS i
             ) AS chosen (page),
             generate_series(1, (bytes - 24) / 28) AS line
        WHERE page >= 0
    ))
) AS ckpt_rows
WHERE ckpt_age <= {half} OR ckpt_place % greatest((ckpt_all + {half} - 1) / {half}, 1) = 0
"""
"""Query of a sample of a table's rows: hash, writing transaction, and whether the row is among the newest.

It reads a few pages without a scan.
"""


@dataclass(frozen=True, slots=True)
class TargetPart:
    """A table that holds rows of the target: the target itself, a partition or a child.

    :param oid: the table's oid
    :param name: schema and name of the table, as SQL
    :param place: bounds of the partition and of those that contain it, as a path; a partition that was dropped and
        recreated has the same path
    :param file: number of the file that stores its rows
    :param size: size of that file in bytes
    :param readable: whether the sink's role may read all its rows
    :param columns: numbers and types of its columns; most forms of ALTER TABLE that rewrite a table change them
    """

    oid: int
    name: str
    place: str
    file: int
    size: int
    readable: bool
    columns: str

    def label(self, target: Table) -> str:
        """Return the table for messages, such as ``"public"."orders_2026" of target public.orders``.

        For the target itself this is ``target public.orders``.

        :param target: the target
        """
        return f"target {target.label}" if self.oid == target.oid else f"{self.name} of target {target.label}"


def take_target_snapshot(fetch: Fetch, table: Table, key: Sequence[str]) -> dict[str, Any]:
    """Return a snapshot of the target: its tables with files, sizes and sampled rows, as a JSON-ready dict.

    :param fetch: runs a query and returns its rows
    :param table: the target
    :param key: key columns of an upsert; empty for append. The hash of a row covers these columns, or without them the
        primary key, since other columns may change; without either it covers all columns
    """
    parts = _read_parts(fetch, table)
    stable = key or [name for (name,) in fetch(_PRIMARY_KEY, [table.oid])]
    columns = [name for name, column in table.by_name.items() if name in stable or not (stable or column.generated)]
    rows = _sample(fetch, columns, list(parts.values()))
    return {
        "target": table.oid,
        "columns": columns,
        "parts": {str(oid): {**asdict(part), **rows.get(oid, {})} for oid, part in parts.items()},
    }


def find_loss(fetch: Fetch, table: Table, snapshot: Mapping[str, Any], *, delivered: bool) -> str | None:
    """Return the evidence that delivered rows are gone from the target, for an error message; None if there is none.

    For example: ``"public"."orders_2026" of target public.orders was truncated since the last run``. A snapshot of
    another table, such as a table of the same name that was dropped, is ignored.

    :param fetch: runs a query and returns its rows
    :param table: the target
    :param snapshot: the last snapshot, as :func:`take_target_snapshot` returned it
    :param delivered: whether receipts count delivered rows, so that the target must have contained rows
    """
    if snapshot.get("target", table.oid) != table.oid:
        return None
    parts, stored = _read_parts(fetch, table), _stored_parts(snapshot)
    changed = [
        (part, stored[part.oid])
        for part in parts.values()
        if _stored_file(stored.get(part.oid)) not in (None, part.file)
    ]
    absent = [before for oid, before in stored.items() if oid not in parts]
    if delivered and not any(part.size for part in parts.values()):
        if changed:
            return f"target {table.label} was truncated: it is empty, and stored in another file than at the last run"
        if absent:
            return (
                f"target {table.label} is empty, and the partitions with its rows were removed since the last run "
                f"({_names_text(absent)})"
            )
    emptied = [part.name for part, before in changed if before["size"] and not part.size]
    if emptied:
        return f"{', '.join(emptied)} of target {table.label} was truncated since the last run"
    replaced = list(_replaced_partitions(parts, stored))
    for part, before in replaced:
        if before["size"] and not part.size:
            return f"{part.label(table)} is empty, and replaced {before['name']}, which contained rows"
    for part, before in [*changed, *replaced]:
        missing = _describe_missing(fetch, table, part, snapshot["columns"], before)
        if missing:
            what = "is stored in another file" if part.oid in stored else "is another table"
            return (
                f"{part.label(table)} {what} than at the last run, and {missing} that were sampled then can be found: "
                "it was truncated and filled again"
            )
    return None


def removed_partitions(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the names of the partitions and children that had rows and no longer belong to the target, for a message.

    :param before: an earlier snapshot of the target, as :func:`take_target_snapshot` returned it
    :param now: a later snapshot of the same target
    :return: the first names and the number of all others; empty if there are none
    """
    if before.get("target") != now.get("target"):
        return ""
    later = _stored_parts(now)
    return _names_text([part for oid, part in _stored_parts(before).items() if part["size"] and oid not in later])


def _read_parts(fetch: Fetch, table: Table) -> dict[int, TargetPart]:
    return {row[0]: TargetPart(*row) for row in fetch(_PARTS, [table.oid])}


def _stored_parts(snapshot: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {int(oid): part for oid, part in snapshot.get("parts", {}).items()}


def _stored_file(stored: Mapping[str, Any] | None) -> int | None:
    return None if stored is None else int(stored["file"])


def _names_text(stored: Sequence[Mapping[str, Any]]) -> str:
    names = [part["name"] for part in stored if part["size"]] or [part["name"] for part in stored]
    return ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")


def _replaced_partitions(
    parts: Mapping[int, TargetPart], stored: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[TargetPart, Mapping[str, Any]]]:
    """Yield each partition that replaced a former one of equal bounds, with the snapshot's entry for the former one.

    :param parts: the tables of the target as they are now, by oid
    :param stored: the snapshot's entries for the tables that the target had then, by oid
    """
    vacated = {before["place"]: before for oid, before in stored.items() if oid not in parts}
    for part in parts.values():
        if part.oid not in stored and part.place in vacated:
            yield part, vacated[part.place]


def _sample(
    fetch: Fetch, columns: Sequence[str], parts: Sequence[TargetPart]
) -> dict[int, dict[str, list[tuple[int, int]]]]:
    """Return the hash and the writing transaction of some rows of each table, by the table's oid.

    Each entry has two lists: ``newest`` for the newest rows, and ``others`` for rows spread over the table.

    :param fetch: runs a query and returns its rows
    :param columns: names of the columns to hash
    :param parts: the tables; only the largest that can be read are sampled
    """
    readable = sorted((part for part in parts if part.readable and part.size), key=lambda part: -part.size)
    if not columns or not readable:
        return {}
    chosen = readable[:_SAMPLED_TABLES]
    half = max(_MIN_SAMPLED_ROWS, _SAMPLED_ROWS // len(chosen)) // 2
    pages = max(_MIN_SAMPLED_PAGES, _SAMPLED_PAGES // len(chosen))
    queries = (
        _ROWS.format(
            oid=part.oid,
            hash=_hash_sql(columns),
            columns=", ".join(map(quote, columns)),
            name=part.name,
            size=part.size,
            half=half,
            spread=pages - pages // 3,
            final=pages // 3,
        )
        for part in chosen
    )
    found: dict[int, dict[str, list[tuple[int, int]]]] = {}
    for oid, value, writer, new in fetch(f"{_SET_TEXT_FORMS}; {' UNION ALL '.join(queries)}", []):
        rows = found.setdefault(oid, {"newest": [], "others": []})
        rows["newest" if new else "others"].append((value, writer))
    return found


def _describe_missing(
    fetch: Fetch, table: Table, part: TargetPart, columns: Sequence[str], before: Mapping[str, Any]
) -> str | None:
    """Return how many of the sampled rows a table with a new file still has, such as ``only 3 of 20 rows``.

    Return None if nothing indicates a loss, or the rows cannot be compared.

    VACUUM FULL and CLUSTER copy each row with the transaction that wrote it. So if one sampled row is found with its
    transaction, the table was not refilled, and any absent rows were deleted. Otherwise all sampled rows must be
    present. In a table whose columns changed, and in a partition that replaced another, only the newest rows must be
    present, since old rows may have been deleted before the ALTER TABLE or the copy.

    :param fetch: runs a query and returns its rows
    :param table: the target
    :param part: the table as it is now: the target itself, a partition or a child
    :param columns: names of the columns that were hashed
    :param before: the snapshot's entry for this table, or for the partition that it replaced
    """
    newest, others = ({(row[0], row[1]) for row in before.get(name, [])} for name in ("newest", "others"))
    if not newest or not set(columns) <= set(table.by_name) or not part.readable:
        return None
    hashes = ", ".join(str(value) for value, _ in newest | others)
    found = f"FROM ONLY {part.name} WHERE {_hash_sql(columns)} = ANY (ARRAY[{hashes}]::bigint[])"
    written = ", ".join(f"({value}, {writer})" for value, writer in newest | others)
    unmoved = f"SELECT EXISTS (SELECT {found} AND ({_hash_sql(columns)}, xmin::text::bigint) IN ({written}))"
    if fetch(f"{_SET_TEXT_FORMS}; {unmoved}", [])[0][0]:
        return None
    present = {value for (value,) in fetch(f"{_SET_TEXT_FORMS}; SELECT DISTINCT {_hash_sql(columns)} {found}", [])}
    rewritten = part.oid != before["oid"] or part.columns != before["columns"]
    wanted = {value for value, _ in (newest if rewritten else newest | others)}
    if wanted <= present:
        return None
    stored = len(wanted & present)
    return f"{f'only {stored}' if stored else 'none'} of {len(wanted)} rows"


def _hash_sql(columns: Sequence[str]) -> str:
    return f"pg_catalog.hashtextextended(ROW({', '.join(map(quote, columns))})::text, 0)"
