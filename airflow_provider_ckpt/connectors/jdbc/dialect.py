"""Generate the SQL of the jdbc source in the dialects of its databases.

Names are quoted as the driver specifies. The only values in the SQL are positions, which are written as constants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_ckpt.connectors.jdbc.column_types import (
    MICROSECONDS_A_DAY,
    Column,
    CursorKind,
    DriverColumn,
    to_spark_column,
)
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import START, Range

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of the database's times, which may have no zone
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTS = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_WITH_LIMIT = frozenset({"MySQL", "MariaDB", "SQLite"})
"""Products that can limit the rows of a query only by LIMIT; all others support the standard's FETCH NEXT."""

_POSTGRES = "PostgreSQL"
_CASTS_TO_TEXT = {_POSTGRES: "CAST({} AS text)", "H2": "CAST({} AS varchar)"}
"""SQL template that casts an expression ``{}`` of any type to text, by product."""

_IDENTIFIED_TYPES = {
    _POSTGRES: frozenset(
        [
            "bool",
            "int2",
            "int4",
            "int8",
            "float4",
            "float8",
            "numeric",
            "text",
            "varchar",
            "bpchar",
            "name",
            "bytea",
            "date",
            "timestamp",
            "timestamptz",
        ]
    ),
}
"""For each product, the names of the types that have a code in java.sql.Types for themselves.

Columns of all other types of the product are read as text, because the code does not tell which type they have. In a
product that is not listed here, only columns of the types in :data:`_UNIDENTIFIED_TYPES` are read as text.
"""

_UNIDENTIFIED_TYPES = {"H2": frozenset({"UUID", "JSON", "GEOMETRY"})}
"""Names of the types that share their code in java.sql.Types with another type, by product; they are read as text."""

_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())::text || '/' || d.oid || '/' || {0}::regclass::oid
FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()
"""
_GUARD = """
DO {2} BEGIN
  IF pg_catalog.to_regclass({0})::oid IS DISTINCT FROM {1:d}::oid THEN
    RAISE EXCEPTION 'the table is not the one that was planned for: it was dropped or recreated'
      USING ERRCODE = '55000';
  END IF;
END {2}
"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """SQL dialect of one database.

    :param product: name of the database product, as the driver reports it
    :param quotation_mark: quotation mark for names, as the driver reports it; a blank if the database does not quote
        names
    """

    product: str
    quotation_mark: str

    def quote(self, name: str) -> str:
        """Return a name as a quoted SQL identifier.

        :raises ConfigError: if the driver has no quotation mark, and the name needs one
        """
        if self.quotation_mark.strip():
            return (
                self.quotation_mark + name.replace(self.quotation_mark, self.quotation_mark * 2) + self.quotation_mark
            )
        if not _PLAIN.fullmatch(name):
            raise ConfigError(
                f"the driver of {self.product} cannot quote the name {name!r}.",
                hint="Name a view with a plain name instead.",
            )
        return name

    def table(self, name: str) -> str:
        """Return a table's name as SQL, with each part quoted.

        :param name: name as written in the pipeline: ``catalog.schema.table``, ``schema.table`` or ``table``
        """
        return ".".join(self.quote(part) for part in split_name(name))

    def column(self, column: DriverColumn) -> Column:
        """Return the description of a column for Spark, such as its Spark SQL type, from the driver's description."""
        known, unknown = _IDENTIFIED_TYPES.get(self.product), _UNIDENTIFIED_TYPES.get(self.product, frozenset())
        foreign = column.type in unknown or (known is not None and column.type not in known)
        return to_spark_column(column, text_only=foreign, zoned=column.type == "timestamptz")

    def value(self, column: Column) -> str:
        """Return the SQL expression that selects a column.

        In PostgreSQL and H2, a column whose type can only be read as text is cast to text.
        """
        name = self.quote(column.name)
        return (
            _CASTS_TO_TEXT[self.product].format(name) if column.text_only and self.product in _CASTS_TO_TEXT else name
        )

    def first(self, count: int) -> str:
        """Return the SQL clause, to follow ORDER BY, that limits a query to its first rows.

        :param count: number of rows
        """
        return f"LIMIT {count:d}" if self.product in _WITH_LIMIT else f"OFFSET 0 ROWS FETCH NEXT {count:d} ROWS ONLY"

    def within(self, kind: CursorKind, cursor: str, span: Range) -> str:
        """Return the SQL condition for rows whose position is in a range.

        :param kind: type of the cursor
        :param cursor: the cursor column as SQL
        :param span: the half-open range of positions
        """
        upper = f"{cursor} < {position_constant(kind, span.end)}"
        return upper if span.start <= START else f"{cursor} >= {position_constant(kind, span.start)} AND {upper}"

    def identity(self, table: str) -> str | None:
        """Return a query for the identity of a table: a text that changes if the table is dropped and recreated.

        Return None for a database whose tables have no identity; only those of PostgreSQL have one.

        :param table: the table's name as SQL
        """
        return _IDENTITY.format(_text_constant(table)) if self.product == _POSTGRES else None

    def guard(self, table: str, identity: str) -> str | None:
        """Return a statement that fails if a table was dropped or recreated after a batch was planned.

        Return None if the database has no identity of tables.

        :param table: the table's name as SQL
        :param identity: result of the query :meth:`identity` when the batch was planned
        """
        if self.product != _POSTGRES:
            return None
        tag = "$ckpt$"
        while tag in table:
            tag = f"{tag[:-1]}_$"
        return _GUARD.format(_text_constant(table), int(identity.rpartition("/")[2]), tag)


def position_constant(kind: CursorKind, position: int) -> str:
    """Return the smallest cursor value at or after a position, as an SQL constant.

    The position of a cursor value is smaller than the given one if and only if the value is less than the constant.

    :param kind: type of the cursor
    :param position: the position
    :raises SourceError: if the cursor is a time and the position lies outside the years 1 to 9999
    """
    if kind is CursorKind.NUMBER:
        return f"{position:d}"
    if kind is CursorKind.DATE:
        position += -position % MICROSECONDS_A_DAY
    try:
        moment = _EPOCH + timedelta(microseconds=position)
    except OverflowError as error:
        raise SourceError(f"position {position} lies outside the years 1 to 9999.", position=position) from error
    text = moment.isoformat(" ", "microseconds").rjust(26, "0")
    if kind is CursorKind.DATE:
        return f"{{d '{text[:10]}'}}"
    return f"{{ts '{text}'}}" if kind is CursorKind.TIMESTAMP else f"TIMESTAMP WITH TIME ZONE '{text}+00:00'"


def split_name(name: str) -> list[str]:
    """Split a table's name into its parts: ``catalog.schema.table``, or fewer; a part may be in double quotes.

    :raises ConfigError: if the name has more than three parts, or a part is malformed
    """
    found = _PARTS.findall(name)
    parts = [quoted.replace('""', '"') if quoted else unquoted for quoted, unquoted in found]
    name_as_given = ".".join('"' + quoted + '"' if quoted else unquoted for quoted, unquoted in found)
    if name_as_given != name or len(parts) not in (1, 2, 3):
        raise ConfigError(
            f"{name!r} is not the name of a table.",
            hint='Write schema.table; put a part that contains a dot in "quotes".',
        )
    return parts


def _text_constant(value: str) -> str:
    """Return a text as a constant of PostgreSQL (``E'…'``), independent of ``standard_conforming_strings``."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"
