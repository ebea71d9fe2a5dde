"""Compare the keys of an upsert as the target does: rounded, truncated and collated as the column stores them.

If the target's key is coarser than the source's (``numeric(10,2)``, ``citext``, ``timestamp(0)``, a collation that
ignores case …), several records of a batch can have the same key; the last of them is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.table import Column, Fetch, Table
from airflow_provider_ckpt.core.errors import ConfigError

_UNIQUE_INDEXES = """
    SELECT i.indexrelid, i.indisprimary, i.indkey::int2[] AS numbers, i.indcollation::oid[] AS collations
    FROM pg_catalog.pg_index i
    WHERE i.indrelid = {0}::oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
      AND i.indexprs IS NULL
      AND (SELECT array_agg(k ORDER BY k) FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) AS k)
        = (SELECT array_agg(k ORDER BY k) FROM unnest({1}::int2[]) AS k)
"""
_IS_UNIQUE = f"SELECT EXISTS ({_UNIQUE_INDEXES})"
_COLLATION = f"""
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(o.collname)
FROM ({_UNIQUE_INDEXES} ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1) AS key,
     unnest(key.numbers, key.collations) AS part (number, rules)
JOIN pg_catalog.pg_collation o ON o.oid = part.rules
JOIN pg_catalog.pg_namespace n ON n.oid = o.collnamespace
WHERE part.number = {{2}}::int2
"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Column of the key of an upsert.

    :param column: the column of the target
    :param collation: collation of the column in the unique index, as SQL; empty if it has none
    """

    column: Column
    collation: str

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    def comparable(self, value: str) -> str:
        """Return an SQL expression of a value as the target's unique index compares it.

        :param value: SQL expression of the value, of the column's base type without a length
        """
        fitted = self.column.as_stored(value)
        return f"({fitted}) COLLATE {self.collation}" if self.collation else fitted


def describe_key(fetch: Fetch, target: Table, names: Sequence[str]) -> list[KeyColumn]:
    """Return the columns of an upsert's key as the target has them, in the given order.

    :param fetch: runs a query and returns its rows
    :param target: the target
    :param names: names of the key's columns; all must exist in the target
    """
    columns = [target.by_name[name] for name in names]
    numbers = [column.number for column in columns]
    collations = [fetch(_COLLATION, [target.oid, numbers, number]) for number in numbers]
    return [KeyColumn(column, found[0][0] if found else "") for column, found in zip(columns, collations, strict=True)]


def refuse_unsuitable_key(fetch: Fetch, table: Table, names: Sequence[str], pipeline: str) -> None:
    """Raise ConfigError if the columns of an upsert's key do not identify rows of the target.

    :param fetch: runs a query
    :param table: the target
    :param names: the columns of ``sink.key``, for upserts; empty for append
    :param pipeline: the pipeline's name, for the message
    :raises ConfigError: if the target lacks one of the columns, or they are neither its primary key nor unique and NOT
        NULL
    """
    missing = [name for name in names if name not in table.by_name]
    if missing:
        raise ConfigError(
            f"target table {table.label} has no column {', '.join(missing)}, part of sink.key.",
            pipeline=pipeline,
            hint=f"Its columns are: {', '.join(table.by_name)}.",
        )
    columns = [table.by_name[name] for name in names]
    if not columns:
        return
    unique = fetch(_IS_UNIQUE, [table.oid, [column.number for column in columns]])[0][0]
    if not unique or not all(column.not_null for column in columns):
        key = ", ".join(map(quote, names))
        raise ConfigError(
            f"sink.key ({key}) of {table.label} is neither a primary key nor unique and NOT NULL.",
            pipeline=pipeline,
            hint=f"ALTER TABLE {table.sql} ADD PRIMARY KEY ({key}), or use mode: append.",
        )
