"""A table as PostgreSQL's catalog describes it, for both halves of source and sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import quote, split_table

Fetch = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs one statement and gives all its rows; values, if any, are bound at ``{0}``, ``{1}`` …"""

_RELATION = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass({0}::text)
"""

_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attnum, t.oid, t.typtype, t.typbasetype, t.typname, t.typreceive, t.typtypmod, a.atttypmod AS typmod
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = {0}::oid AND a.attnum > 0 AND NOT a.attisdropped
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
       a.atthasdef OR t.typdefault IS NOT NULL,
       CASE WHEN base.typmod >= 0 THEN (
           SELECT pg_catalog.format('%I.%I(%%s, %s%s)', n.nspname, f.proname, base.typmod,
                                    CASE f.pronargs WHEN 3 THEN ', false' ELSE '' END)
           FROM pg_catalog.pg_cast c JOIN pg_catalog.pg_proc f ON f.oid = c.castfunc
           JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
           WHERE c.castsource = base.oid AND c.casttarget = base.oid
       ) END,
       pg_catalog.format_type(base.oid, base.typmod), e.typname::text, e.typtype::text,
       element.typmod::int
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN base ON base.attnum = a.attnum AND base.typtype <> 'd'
JOIN element ON element.attnum = a.attnum
JOIN pg_catalog.pg_type e ON e.oid = element.oid AND e.typtype <> 'd'
                         AND e.typreceive <> 'pg_catalog.array_recv'::regproc
LEFT JOIN pg_catalog.pg_proc p ON p.oid = base.typreceive
WHERE a.attrelid = {0}::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    :param type_name: its type's name in pg_type, of a domain the domain's
    :param type_sql: its type without a length, of a domain the base type's: a cast to a length, or to a domain that has
        one, would cut silently
    :param receive: the function that reads its binary form, of a domain the base type's
    :param modifier: atttypmod (of a domain the base type's), -1 without one
    :param identity: ``a`` for GENERATED ALWAYS AS IDENTITY, ``d`` BY DEFAULT, else empty
    :param generated: not empty if it is computed from others
    :param base_type: its type's name in pg_type, of a domain the base type's
    :param has_default: whether a row that leaves it out gets a value all the same
    :param fitting: how the server fits a value into the column's length or scale when it is assigned: a call with
        ``%s`` for the value; None if the column has neither
    :param exact_type_sql: its type with a length or scale, of a domain the base type's
    :param element: of an array, the name of its elements' type in pg_type, of a domain the base type's; else its own
    :param element_kind: pg_type.typtype of that: ``b`` base, ``c`` composite, ``e`` enum, ``r`` range, ``m`` multirange
    :param element_modifier: of an array of domains, their atttypmod; else -1
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
    fitting: str | None
    exact_type_sql: str
    element: str
    element_kind: str
    element_modifier: int

    @property
    def is_array(self) -> bool:
        """Whether its values are arrays, of any type."""
        return self.receive == "array_recv"

    def fitted(self, value: str) -> str:
        """SQL for a value of the column's type as it would be stored: rounded, padded, or an error."""
        return value if self.fitting is None else self.fitting.replace("%s", value, 1)


@dataclass(frozen=True, slots=True)
class Table:
    """A relation and its columns, in order.

    :param kind: pg_class.relkind: ``r`` table, ``p`` partitioned table, ``v`` view …
    """

    oid: int
    schema: str
    name: str
    kind: str
    columns: Sequence[Column]

    @property
    def sql(self) -> str:
        """Its name as SQL."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def label(self) -> str:
        """Its name for a person, and the id of its source partition."""
        return f"{self.schema}.{self.name}"

    @property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {column.name: column for column in self.columns}


def describe(fetch: Fetch, name: str) -> Table | None:
    """The table of that name, or None if there is none.

    :param name: as a pipeline writes it
    """
    schema, table = split_table(name)
    found = fetch(_RELATION, [f"{quote(schema)}.{quote(table)}" if schema else quote(table)])
    if not found:
        return None
    oid, schema, table, kind = found[0]
    return Table(oid, schema, table, kind, tuple(Column(*row) for row in fetch(_COLUMNS, [oid])))


def psycopg_fetch(connection: Any) -> Fetch:
    """:data:`Fetch` over a psycopg2 connection."""

    def fetch(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        names = {f"v{index}": value for index, value in enumerate(values)}
        if values:  # a template of ours; a statement without values may have braces in its identifiers
            statement = statement.replace("%", "%%").format(*(f"%({name})s" for name in names))
        with connection.cursor() as cursor:
            cursor.execute(statement, names or None)
            return list(cursor.fetchall())

    return fetch


def adbc_fetch(cursor: Any) -> Fetch:
    """:data:`Fetch` over an ADBC cursor."""

    def fetch(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        import pyarrow as pa

        # Arrow in and out: the cursor's own conversions take as long as a small statement itself.
        names = [f"${index + 1}" for index in range(len(values))]
        bound = pa.RecordBatch.from_arrays([pa.array([value]) for value in values], names) if values else None
        cursor.execute(statement.format(*names) if values else statement, bound)
        columns = [column.to_pylist() for column in cursor.fetch_arrow_table().columns]
        return list(zip(*columns, strict=True))

    return fetch
