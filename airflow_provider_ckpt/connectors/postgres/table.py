"""Read the description of a table (identity, columns and their types) from PostgreSQL's catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import quote, split_table
from airflow_provider_ckpt.core.schema_version import SourceColumn

Fetch = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Function that runs one SQL statement and returns all its rows.

The second argument has the values that are bound at ``{0}``, ``{1}`` … in the statement. Without values, braces in the
statement have no meaning.
"""

_RELATION = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass({0}::text)
"""

_LENGTH_CAST = """
CASE WHEN {modifier} >= 0 THEN (
    SELECT pg_catalog.format('%I.%I(%%s, %s%s)', n.nspname, f.proname, {modifier},
                             CASE f.pronargs WHEN 3 THEN ', false' ELSE '' END)
    FROM pg_catalog.pg_cast c JOIN pg_catalog.pg_proc f ON f.oid = c.castfunc
    JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
    WHERE c.castsource = {type} AND c.casttarget = {type}
) END
"""

_SIMPLE_COLUMNS = f"""
SELECT a.attname::text, a.attnum::int, t.typname::text, pg_catalog.format_type(t.oid, -1), p.proname::text,
       a.atttypmod::int, a.attnotnull, a.attidentity::text, a.attgenerated::text, t.typname::text,
       a.atthasdef OR t.typdefault IS NOT NULL, {_LENGTH_CAST.format(modifier="a.atttypmod", type="t.oid")},
       pg_catalog.format_type(t.oid, a.atttypmod), t.typname::text, t.typtype::text, -1,
       t.typtype = 'd' OR t.typreceive = 'pg_catalog.array_recv'::regproc
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_proc p ON p.oid = t.typreceive
WHERE a.attrelid = {{0}}::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
"""Query of a table's columns, and of whether the type of each is a domain or an array.

If none is, the other values are those of :data:`_COLUMNS`, in a quarter of the server's time.
"""

_COLUMNS = f"""
WITH RECURSIVE base AS (
    SELECT a.attnum, t.oid, t.typtype, t.typbasetype, t.typname, t.typreceive, t.typtypmod, a.atttypmod AS typmod
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = {{0}}::oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT base.attnum, t.oid, t.typtype, t.typbasetype, t.typname, t.typreceive, t.typtypmod, base.typtypmod
    FROM base JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype
    WHERE base.typtype = 'd'
), element (attnum, oid, typmod) AS (
    SELECT base.attnum, base.oid, -1 FROM base WHERE base.typtype <> 'd'
  UNION ALL
    SELECT element.attnum, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
           CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE element.typmod END
    FROM element JOIN pg_catalog.pg_type t ON t.oid = element.oid
    WHERE t.typtype = 'd' OR t.typreceive = 'pg_catalog.array_recv'::regproc
)
SELECT a.attname::text, a.attnum::int, t.typname::text, pg_catalog.format_type(base.oid, -1), p.proname::text,
       base.typmod::int, a.attnotnull, a.attidentity::text, a.attgenerated::text, base.typname::text,
       a.atthasdef OR t.typdefault IS NOT NULL, {_LENGTH_CAST.format(modifier="base.typmod", type="base.oid")},
       pg_catalog.format_type(base.oid, base.typmod), e.typname::text, e.typtype::text,
       element.typmod::int
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN base ON base.attnum = a.attnum AND base.typtype <> 'd'
JOIN element ON element.attnum = a.attnum
JOIN pg_catalog.pg_type e ON e.oid = element.oid AND e.typtype <> 'd'
                         AND e.typreceive <> 'pg_catalog.array_recv'::regproc
LEFT JOIN pg_catalog.pg_proc p ON p.oid = base.typreceive
WHERE a.attrelid = {{0}}::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table. For a column of a domain, most attributes describe the domain's base type.

    :param name: the column's name
    :param number: the column's number (``attnum``)
    :param type_name: the type's name in pg_type; for a domain, the domain's name
    :param type_sql: the base type as SQL without a length, since a cast to a type with a length truncates silently
    :param receive: name of the function that reads the base type's binary form; None if the type has none
    :param modifier: ``atttypmod`` of the base type, which encodes length or precision and scale; -1 without either
    :param not_null: whether the column is NOT NULL
    :param identity: ``a`` for GENERATED ALWAYS AS IDENTITY, ``d`` for BY DEFAULT, else empty
    :param generated: not empty if the column is computed from others
    :param base_type: the base type's name in pg_type
    :param has_default: whether a row that is inserted without the column gets a value for it
    :param length_cast: the function call by which the server adapts an assigned value to the column's length or scale,
        with ``%s`` for the value; None if the column has neither
    :param exact_type_sql: the base type as SQL with its length or scale
    :param element: for an array, the name of its elements' base type in pg_type; otherwise that of the column's own
        base type
    :param element_kind: pg_type.typtype of ``element``: ``b`` base, ``c`` composite, ``e`` enum, ``r`` range, ``m``
        multirange
    :param element_modifier: for an array of domains, their ``atttypmod``; otherwise -1
    """

    name: str
    number: int
    type_name: str
    type_sql: str
    receive: str | None
    modifier: int
    not_null: bool
    identity: str
    generated: str
    base_type: str
    has_default: bool
    length_cast: str | None
    exact_type_sql: str
    element: str
    element_kind: str
    element_modifier: int

    @property
    def is_array(self) -> bool:
        """True if the column's values are arrays, of any type."""
        return self.receive == "array_recv"

    def as_stored(self, value: str) -> str:
        """Return an SQL expression of a value as the column would store it: rounded, truncated or padded to its length.

        Its evaluation fails for a value that the column refuses.

        :param value: SQL expression of the value, of the column's base type
        """
        return value if self.length_cast is None else self.length_cast.replace("%s", value, 1)


@dataclass(frozen=True, slots=True)
class Table:
    """A relation and its columns.

    :param oid: the relation's oid
    :param schema: the relation's schema
    :param name: the relation's name
    :param kind: ``pg_class.relkind``: ``r`` table, ``p`` partitioned table, ``v`` view …
    :param columns: the columns, in order
    """

    oid: int
    schema: str
    name: str
    kind: str
    columns: Sequence[Column]

    @property
    def sql(self) -> str:
        """Schema and name of the relation as SQL."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def label(self) -> str:
        """Schema and name of the relation for messages; for a source, this is also the id of its partition."""
        return f"{self.schema}.{self.name}"

    @property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by their name."""
        return {column.name: column for column in self.columns}


def describe_table(fetch: Fetch, name: str) -> Table | None:
    """Return the description of a table or other relation; None if there is none of that name.

    :param fetch: runs a query and returns its rows
    :param name: name as written in a pipeline, see :func:`~.client.split_table`
    """
    schema, table = split_table(name)
    found = fetch(_RELATION, [f"{quote(schema)}.{quote(table)}" if schema else quote(table)])
    if not found:
        return None
    oid, schema, table, kind = found[0]
    columns = fetch(_SIMPLE_COLUMNS, [oid])
    if any(is_domain_or_array for *_, is_domain_or_array in columns):
        return Table(oid, schema, table, kind, tuple(Column(*row) for row in fetch(_COLUMNS, [oid])))
    return Table(oid, schema, table, kind, tuple(Column(*row) for *row, _ in columns))


def source_columns(table: Table, names: Collection[str]) -> list[SourceColumn]:
    """Return the columns of a source table that a pipeline reads.

    :param table: the table
    :param names: names of the columns that the pipeline names; empty for all
    """
    return [
        SourceColumn(column.name, column.number, column.exact_type_sql, column.not_null and not column.has_default)
        for column in table.columns
        if column.name in names or not names
    ]


def psycopg_fetch(connection: Any) -> Fetch:
    """Return a :data:`Fetch` that runs statements over a psycopg2 connection.

    :param connection: the psycopg2 connection
    """

    def fetch(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        names = {f"v{index}": value for index, value in enumerate(values)}
        if values:  # a template; a statement without values may have braces in its identifiers
            statement = statement.replace("%", "%%").format(*(f"%({name})s" for name in names))
        with connection.cursor() as cursor:
            cursor.execute(statement, names or None)
            return list(cursor.fetchall())

    return fetch


def adbc_fetch(cursor: Any) -> Fetch:
    """Return a :data:`Fetch` that runs statements over an ADBC cursor.

    :param cursor: the ADBC cursor
    """

    def fetch(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        import pyarrow as pa

        # Values and rows are passed as Arrow: the cursor's own conversions take as long as a small statement.
        names = [f"${index + 1}" for index in range(len(values))]
        bound = pa.RecordBatch.from_arrays([pa.array([value]) for value in values], names) if values else None
        cursor.execute(statement.format(*names) if values else statement, bound)
        columns = [column.to_pylist() for column in cursor.fetch_arrow_table().columns]
        return list(zip(*columns, strict=True))

    return fetch
