"""Map the types of a driver's columns to Spark's, and choose how Spark reads each column through the driver.

Numbers, booleans, texts and bytes are read with their own type. Dates and times are read as text and parsed by Spark,
since drivers convert them in the time zone of the Java process, in which some local times do not exist. Other types are
read as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MICROSECONDS_A_DAY = 86_400_000_000
"""Number of microseconds in a day."""


class CursorKind(StrEnum):
    """Type of a cursor column, which determines the position of a row.

    The position is the cursor's value if that is a number. For dates and times it is the number of microseconds since
    1970-01-01, in UTC for a timestamp with time zone.
    """

    NUMBER = "number"
    DATE = "date"
    TIMESTAMP = "timestamp"
    INSTANT = "timestamp with time zone"


_BY_CODE = {
    -7: "boolean", 16: "boolean",
    -6: "smallint", 5: "smallint", 4: "int", -5: "bigint",
    7: "float", 6: "double", 8: "double",
    2: "decimal", 3: "decimal",
    1: "string", 12: "string", -1: "string", -15: "string", -9: "string", -16: "string", 2005: "string", 2011: "string",
    -2: "binary", -3: "binary", -4: "binary", 2004: "binary",
    91: "date", 93: "timestamp_ntz", 2014: "timestamp", -155: "timestamp",
}  # fmt: skip
"""Spark SQL types by type code: those of java.sql.Types, and -155, SQL Server's own code of ``datetimeoffset``."""

_UNSIGNED = {"smallint": "int", "int": "bigint", "bigint": "decimal(20,0)"}
_AS_TEXT = frozenset({"date", "timestamp_ntz", "timestamp"})
_CURSORS = {
    "smallint": CursorKind.NUMBER,
    "int": CursorKind.NUMBER,
    "bigint": CursorKind.NUMBER,
    "date": CursorKind.DATE,
    "timestamp_ntz": CursorKind.TIMESTAMP,
    "timestamp": CursorKind.INSTANT,
}
_MAX_DIGITS = 18
"""Maximum number of decimal digits of a cursor; a number with more digits may not fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class DriverColumn:
    """A column as the driver describes it (``java.sql.ResultSetMetaData``).

    :param name: name of the column
    :param code: the type's code in ``java.sql.Types``
    :param type: the database's name of the type
    :param precision: number of digits
    :param scale: number of digits after the decimal point
    :param signed: whether the type has negative values
    :param nullable: whether the column may be null
    """

    name: str
    code: int
    type: str
    precision: int
    scale: int
    signed: bool
    nullable: bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column as Spark reads it.

    :param name: name of the column
    :param type: the database's name of the type
    :param spark: Spark SQL type of the column in a batch
    :param nullable: whether the column may be null
    :param text_only: whether values are read as text because no Spark type represents the database's type
    """

    name: str
    type: str
    spark: str
    nullable: bool
    text_only: bool

    @property
    def cast(self) -> bool:
        """True if the column is a date or time, which is read as text and then parsed by Spark."""
        return self.spark in _AS_TEXT

    @property
    def read_as(self) -> str:
        """Spark SQL type that is requested from the driver: ``string`` for a date or time, else the column's type."""
        return "string" if self.cast else self.spark

    @property
    def cursor(self) -> CursorKind | None:
        """Kind of cursor that the column can be; None if it cannot be the cursor, since its values have no position."""
        digits, _, scale = self.spark.removeprefix("decimal(").removesuffix(")").partition(",")
        if self.spark.startswith("decimal("):
            return CursorKind.NUMBER if scale == "0" and int(digits) <= _MAX_DIGITS else None
        return _CURSORS.get(self.spark)


def to_spark_column(column: DriverColumn, *, text_only: bool, zoned: bool) -> Column:
    """Return the description of a column as Spark reads it.

    :param column: the driver's description
    :param text_only: whether the column must be read as text, because several types of the database have its code in
        ``java.sql.Types``
    :param zoned: whether a timestamp has a time zone, although its code is that of one without
    """
    spark = "string" if text_only else _BY_CODE.get(column.code)
    if spark == "boolean" and column.precision > 1:
        spark = None
    elif spark == "decimal":
        fits = 0 < column.precision <= 38 and 0 <= column.scale <= column.precision
        spark = f"decimal({column.precision},{column.scale})" if fits else "string"
    elif spark == "timestamp_ntz" and zoned:
        spark = "timestamp"
    if spark in _UNSIGNED and not column.signed:
        spark = _UNSIGNED[spark]
    return Column(column.name, column.type, spark or "string", column.nullable, text_only or spark is None)
