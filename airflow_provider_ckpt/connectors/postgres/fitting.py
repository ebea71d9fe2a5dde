"""Whether rows can go into a target table at all: asked once, before anything is sent.

What only some values break (a length, a range, a constraint) is not judged here: that costs a record, not the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_ckpt.connectors.postgres.table import Column, Table
from airflow_provider_ckpt.core.errors import ConfigError

FILLS_COLUMNS = """
SELECT 1 FROM pg_catalog.pg_trigger
WHERE tgrelid = {0}::oid AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype::int & 7 = 7 LIMIT 1
"""
"""Finds a BEFORE INSERT trigger for each row, which may fill columns that the rows leave out."""

_NOT_FOR_TEXT = frozenset(
    {
        *("boolrecv", "int2recv", "int4recv", "int8recv", "float4recv", "float8recv"),
        *("date_recv", "timestamp_recv", "timestamptz_recv"),
    }
)
"""Types that Spark has too. Text for one of them was never cast; PostgreSQL itself would not assign it."""


def refuse_misfits(table: Table, columns: Sequence[tuple[str, str]], *, filled: bool, pipeline: str) -> None:
    """Fail if the rows have a column too many, lack one that the table demands, or bring text where it takes none.

    :param columns: the rows' columns: name and Spark SQL type
    :param filled: whether a trigger may fill columns
    :raises ConfigError: naming the columns and what to do
    """
    known = table.by_name
    names = [name for name, _ in columns]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"target {table.label} has no column {', '.join(unknown)}; it has {', '.join(known)}",
            pipeline=pipeline,
            hint="Name the target's columns in transform.select, or add them to the target.",
        )
    lacking = [name for name, column in known.items() if name not in names and _demanded(column)]
    if lacking and not filled:
        raise ConfigError(
            f"target {table.label} demands {', '.join(lacking)} (NOT NULL, no default); "
            f"the rows have {', '.join(names)}",
            pipeline=pipeline,
            hint="Add the columns to transform.select, or give them a default.",
        )
    texts = [name for name, kind in columns if kind == "string" and known[name].receive in _NOT_FOR_TEXT]
    if texts:
        kinds = ", ".join(f"{name} {known[name].type_sql}" for name in texts)
        raise ConfigError(
            f"the rows bring text for {kinds} of target {table.label}",
            pipeline=pipeline,
            hint="Cast it in transform.select, so that a value that cannot be cast costs its record alone.",
        )


def _demanded(column: Column) -> bool:
    return column.not_null and not (column.has_default or column.identity or column.generated)
