"""Map PostgreSQL types to Spark types and cursor values to positions.

Types without an entry are read as text, which is lossless: PostgreSQL can parse it again.
"""

from __future__ import annotations

from enum import StrEnum

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
    """Return the SQL expression of the position that a cursor value has, exact on every server version.

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
