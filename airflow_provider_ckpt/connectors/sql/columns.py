"""Data classes that describe tables and their columns: kind of the values, and limits such as the length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property


class Kind(StrEnum):
    """Kind of a column's values, which decides how they are read and written."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TEXT = "text"
    BINARY = "binary"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    YEAR = "year"
    BIT = "bit"
    ENUM = "enum"
    SET = "set"
    OTHER_TEXT = "other text"
    UNSUPPORTED = "unsupported"


CURSOR_KINDS = frozenset({Kind.INTEGER, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})
TEXT_KINDS = frozenset({Kind.TEXT, Kind.ENUM, Kind.SET, Kind.OTHER_TEXT, Kind.TIME})
"""Kinds whose values are read as text."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table.

    :param name: the column's name
    :param kind: kind of its values
    :param type_text: its type as the database writes it, for messages
    :param nullable: whether its value may be NULL
    :param filled: whether the column gets a value in a row that is inserted without it: it has a default or is numbered
    :param numbered: whether the database numbers the column (such as AUTO_INCREMENT), so that an inserted NULL would
        become a number
    :param generated: whether the database computes it from other columns, so that it cannot be written
    :param low: least integer that the column can store
    :param high: greatest integer that the column can store
    :param length: greatest number of characters, bytes or bits; None if unlimited
    :param fixed: whether all values are padded to ``length``: binary values with zeros, texts with spaces, which
        are not read again
    :param precision: number of digits of a decimal; None if the column keeps all digits
    :param scale: number of digits of a decimal after the point
    :param digits: number of digits that the database actually keeps of a decimal, whatever the declared precision; None
        if it keeps all
    :param fraction: number of digits of a second after the point
    :param choices: texts that an enum or a set accepts
    """

    name: str
    kind: Kind
    type_text: str
    nullable: bool = True
    filled: bool = False
    numbered: bool = False
    generated: bool = False
    low: int = -(2**63)
    high: int = 2**63 - 1
    length: int | None = None
    fixed: bool = False
    precision: int | None = None
    scale: int = 0
    digits: int | None = None
    fraction: int = 6
    choices: tuple[str, ...] = ()

    @property
    def spark(self) -> str:
        """Spark SQL type as which the column's values are read."""
        if self.kind is Kind.INTEGER:
            return _spark_integer(self.low, self.high)
        if self.kind is Kind.DECIMAL:
            fits = self.precision is not None and self.precision <= 38
            return f"decimal({self.precision},{self.scale})" if fits else "string"
        if self.kind is Kind.BIT:
            return "boolean" if self.length == 1 else _spark_integer(0, 2 ** (self.length or 1) - 1)
        return _SPARK.get(self.kind, "string")


_SPARK: Mapping[Kind, str] = {
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.BINARY: "binary",
    Kind.DATE: "date",
    Kind.DATETIME: "timestamp_ntz",
    Kind.TIMESTAMP: "timestamp",
    Kind.YEAR: "smallint",
}


def _spark_integer(low: int, high: int) -> str:
    for name, bits in (("tinyint", 7), ("smallint", 15), ("int", 31), ("bigint", 63)):
        if low >= -(2**bits) and high < 2**bits:
            return name
    return "decimal(20,0)"


@dataclass(frozen=True)
class Table:
    """Table or view that exists in its database.

    :param schema: its schema; in MySQL and MariaDB its database
    :param name: its name
    :param columns: its columns, in order
    :param unique: columns of each unique key whose columns are not nullable; the primary key is first, if there is one
    :param other_unique: columns of the unique keys with a nullable or computed column
    :param is_view: whether it is a view
    :param problem: reason why it cannot be a target of exactly-once delivery, and the remedy; None if it can
    """

    schema: str
    name: str
    columns: Sequence[Column]
    unique: Sequence[tuple[str, ...]] = ()
    other_unique: Sequence[tuple[str, ...]] = field(default=())
    is_view: bool = False
    problem: tuple[str, str] | None = None

    @property
    def label(self) -> str:
        """Schema and name, for messages."""
        return f"{self.schema}.{self.name}"

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by name."""
        return {column.name: column for column in self.columns}
