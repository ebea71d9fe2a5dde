"""What differs between databases in the little SQL that this source needs; all text of it is made here.

Names are quoted as the driver says. Values are positions, whole numbers that this module writes out, and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_ckpt.connectors.jdbc.column_types import DAY, LEAST, Column, CursorKind, Told, column
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of the database's times, which may have no zone
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTS = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_WITH_LIMIT = frozenset({"MySQL", "MariaDB", "SQLite"})
"""Products that know LIMIT alone; others know the standard's words."""

_POSTGRES = "PostgreSQL"
_TEXTS = {_POSTGRES: "CAST({} AS text)", "H2": "CAST({} AS varchar)"}
"""A value of any type as its text, by product."""

_KNOWN = {
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
"""Types whose code says what they are, by product; where a product is not named, all of them."""

_UNKNOWN = {"H2": frozenset({"UUID", "JSON", "GEOMETRY"})}
"""Types whose code does not say what they are, by product."""

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
    """The SQL of one database.

    :param product: its name, as the driver says
    :param mark: what it puts around names; a blank: it quotes none
    """

    product: str
    mark: str

    def quote(self, name: str) -> str:
        """A name as SQL.

        :raises ConfigError: if the database has no way to quote it
        """
        if self.mark.strip():
            return self.mark + name.replace(self.mark, self.mark * 2) + self.mark
        if not _PLAIN.fullmatch(name):
            raise ConfigError(
                f"the driver of {self.product} cannot quote the name {name!r}.", hint="Name a view of it."
            )
        return name

    def table(self, name: str) -> str:
        """A table's name as SQL."""
        return ".".join(self.quote(part) for part in split(name))

    def column(self, told: Told) -> Column:
        """A column as Spark gets it."""
        known, unknown = _KNOWN.get(self.product), _UNKNOWN.get(self.product, frozenset())
        foreign = told.type in unknown or (known is not None and told.type not in known)
        return column(told, foreign=foreign, zoned=told.type == "timestamptz")

    def value(self, column: Column) -> str:
        """A column as it is selected."""
        name = self.quote(column.name)
        return _TEXTS[self.product].format(name) if column.foreign and self.product in _TEXTS else name

    def first(self, count: int) -> str:
        """Clause that keeps only so many rows; stands behind ORDER BY."""
        return f"LIMIT {count:d}" if self.product in _WITH_LIMIT else f"OFFSET 0 ROWS FETCH NEXT {count:d} ROWS ONLY"

    def within(self, kind: CursorKind, cursor: str, span: Range) -> str:
        """Condition that a row's position lies in a range.

        :param cursor: the cursor column as SQL
        """
        upper = f"{cursor} < {constant(kind, span.end)}"
        return upper if span.start <= LEAST else f"{cursor} >= {constant(kind, span.start)} AND {upper}"

    def identity(self, table: str) -> str | None:
        """Query for what tells a table from another of its name; None where this is not known of the database.

        :param table: its name as SQL
        """
        return _IDENTITY.format(_text(table)) if self.product == _POSTGRES else None

    def guard(self, table: str, identity: str) -> str | None:
        """Statement that fails unless the table is still the one of that identity."""
        if self.product != _POSTGRES:
            return None
        mark = "$ckpt$"
        while mark in table:
            mark = f"{mark[:-1]}_$"
        return _GUARD.format(_text(table), int(identity.rpartition("/")[2]), mark)


def constant(kind: CursorKind, position: int) -> str:
    """SQL constant of a position: what lies before it is less, all else is not.

    :raises SourceError: if no time has that position
    """
    if kind is CursorKind.NUMBER:
        return f"{position:d}"
    if kind is CursorKind.DATE:
        position += -position % DAY
    try:
        moment = _EPOCH + timedelta(microseconds=position)
    except OverflowError as error:
        raise SourceError(f"position {position} lies outside the years 1 to 9999.", position=position) from error
    text = moment.isoformat(" ", "microseconds").rjust(26, "0")
    if kind is CursorKind.DATE:
        return f"{{d '{text[:10]}'}}"
    return f"{{ts '{text}'}}" if kind is CursorKind.TIMESTAMP else f"TIMESTAMP WITH TIME ZONE '{text}+00:00'"


def split(name: str) -> list[str]:
    """The parts of a table's name: ``catalog.schema.table``, or less; a part may be in double quotes.

    :raises ConfigError: if it is no such name
    """
    found = _PARTS.findall(name)
    parts = [quoted.replace('""', '"') if quoted else plain for quoted, plain in found]
    whole = ".".join('"' + quoted + '"' if quoted else plain for quoted, plain in found)
    if whole != name or len(parts) not in (1, 2, 3):
        raise ConfigError(
            f"{name!r} is not the name of a table.", hint='Write schema.table; put a part that holds a dot in "quotes".'
        )
    return parts


def _text(value: str) -> str:
    """An SQL text constant of PostgreSQL, whatever ``standard_conforming_strings`` says."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"
