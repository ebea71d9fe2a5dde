"""Map PostgreSQL types to Spark types and cursor values to positions.

Types without an entry are read as text, which is lossless: PostgreSQL can parse it again.
"""

from __future__ import annotations

import re
from enum import StrEnum

from airflow_provider_ckpt.connectors.postgres.table import Fetch

SPARK_TYPES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "text": "string",
    "varchar": "string",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
"""Spark types of the PostgreSQL types that are read in binary form, by name in pg_type; all others are ``string``."""

_SQL_NAMES = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "text": "text",
    "character varying": "varchar",
    "bytea": "bytea",
    "date": "date",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}
_IS_BUILT_IN = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_type
    WHERE oid = pg_catalog.to_regtype({0}::text)::oid AND typnamespace = 'pg_catalog'::regnamespace
)
"""
_LENGTH_OR_PRECISION = re.compile(r"\(\d+\)")


def spark_type(type_sql: str) -> str:
    """Return the Spark type as which values of a PostgreSQL type are read.

    It is ``string`` for every type that :data:`SPARK_TYPES` does not contain.

    :param type_sql: the PostgreSQL type as ``format_type`` writes it, with or without length
    """
    name = _SQL_NAMES.get(_LENGTH_OR_PRECISION.sub("", type_sql, count=1))
    return "string" if name is None else SPARK_TYPES[name]


def null_type(spark: str) -> str:
    """Return the name of a PostgreSQL type that is read as a given Spark type, for the cast of an SQL null.

    :param spark: the Spark type, one of the values of :data:`SPARK_TYPES`
    """
    return next(name for name, found in SPARK_TYPES.items() if found == spark)


def stored_type(fetch: Fetch, type_sql: str) -> str:
    """Return the type of a new target column for values of a source type: the same if it is built in, else ``text``.

    :param fetch: runs a query on the target's database and returns its rows
    :param type_sql: the source type as ``format_type`` writes it
    """
    [(is_built_in,)] = fetch(_IS_BUILT_IN, [type_sql])
    return type_sql if is_built_in else "text"


class CursorKind(StrEnum):
    """Type of a cursor column, by its name in pg_type."""

    INT2 = "int2"
    INT4 = "int4"
    INT8 = "int8"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"


INTEGERS = frozenset({CursorKind.INT2, CursorKind.INT4, CursorKind.INT8})

MICROSECONDS_A_DAY = 86_400_000_000
"""Number of microseconds in a day."""

FIRST_DAY = -2_440_588
"""PostgreSQL's first date (4714-11-24 BC), in days since 1970-01-01."""


def position_sql(kind: CursorKind, column: str) -> str:
    """Return the SQL expression that computes the position of a cursor value exactly, on every server version.

    The position is the value itself for an integer, and microseconds since 1970-01-01 for a date or time.

    :param kind: the cursor's type
    :param column: an SQL expression of the cursor's type
    """
    if kind in INTEGERS:
        return f"({column})::bigint"
    if kind is CursorKind.DATE:
        return f"(({column}) - date '1970-01-01')::bigint * {MICROSECONDS_A_DAY}"
    seconds = f"extract(epoch FROM date_trunc('second', {column}))::bigint"
    return f"({seconds} * 1000000 + extract(microseconds FROM {column})::bigint % 1000000)"


def value_sql(kind: CursorKind, position: int) -> str:
    """Return the SQL constant of the smallest cursor value at or after a position.

    ``cursor >= constant`` then means the same as ``position(cursor) >= position``.

    :param kind: the cursor's type
    :param position: the position
    """
    if kind in INTEGERS:
        return f"'{position:d}'::bigint"
    days, microseconds = divmod(position, MICROSECONDS_A_DAY)
    if days < FIRST_DAY:
        days, microseconds = FIRST_DAY, 0
    if kind is CursorKind.DATE:
        return f"(date '1970-01-01' + {days + (microseconds > 0):d})"
    naive = f"(date '1970-01-01' + {days:d} + interval '{microseconds:d} microseconds')"
    return naive if kind is CursorKind.TIMESTAMP else f"({naive} AT TIME ZONE 'UTC')"
