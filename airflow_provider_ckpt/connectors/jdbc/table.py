"""Describe the table of a jdbc source, and run the queries that planning needs, such as counts of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.jdbc.client import Database, ResultKind
from airflow_provider_ckpt.connectors.jdbc.column_types import Column, CursorKind
from airflow_provider_ckpt.connectors.jdbc.dialect import Dialect, split_name
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range

_MAX_POSITION = 2**63 - 1


@dataclass(frozen=True)
class Table:
    """A table or view that exists in its database.

    :param database: connection to the database
    :param label: the table's name for messages, which is also the id of its source partition
    :param sql: the table's name as SQL
    :param cursor: the column whose values order the rows
    :param kind: type of the cursor
    :param columns: the columns to read, in order
    """

    database: Database
    label: str
    sql: str
    cursor: Column
    kind: CursorKind
    columns: Sequence[Column]

    @property
    def dialect(self) -> Dialect:
        """SQL dialect of the table's database."""
        return self.database.dialect

    @property
    def cursor_sql(self) -> str:
        """Name of the cursor column as SQL."""
        return self.dialect.quote(self.cursor.name)

    def within(self, span: Range) -> str:
        """Return the SQL condition for the rows whose position is in a range.

        :param span: the range
        """
        return self.dialect.within(self.kind, self.cursor_sql, span)

    def count(self, span: Range, most: int | None = None) -> int:
        """Return the number of rows in a range that are visible now.

        :param span: the range of positions
        :param most: number at which counting stops, and which is then returned; None to count all rows
        """
        rows = f"FROM {self.sql} WHERE {self.within(span)}"
        if most is not None:
            rows = (
                f"FROM (SELECT {self.cursor_sql} AS ckpt_at {rows} ORDER BY {self.cursor_sql} "
                f"{self.dialect.first(most)}) ckpt_held"
            )
        return int(self.database.rows(f"SELECT COUNT(*) {rows}", [ResultKind.COUNT])[0][0])

    def positions(self, span: Range) -> list[int]:
        """Return the positions of the rows in a range that are visible now, in order."""
        found = self.database.rows(
            f"SELECT {self.cursor_sql} FROM {self.sql} WHERE {self.within(span)} ORDER BY {self.cursor_sql}",
            [self.kind],
        )
        return [row[0] for row in found]

    def greatest(self) -> int | None:
        """Return the greatest position of all rows; None if the table is empty.

        :raises SourceError: if the position is the largest 64-bit number, so that no position can follow
        """
        found: int | None = self.database.rows(f"SELECT MAX({self.cursor_sql}) FROM {self.sql}", [self.kind])[0][0]
        if found is not None and found >= _MAX_POSITION:
            raise SourceError(
                f"cursor {self.cursor.name} of {self.label} has reached the largest 64-bit number, so no "
                "greater value can follow.",
                hint="Choose another cursor column.",
            )
        return found

    def after(self, position: int, end: int) -> int | None:
        """Return the smallest position of a row in a range; None if there is no such row.

        :param position: the position before the range
        :param end: the position after the range
        """
        query = f"SELECT MIN({self.cursor_sql}) FROM {self.sql} WHERE {self.within(Range(position + 1, end))}"
        found: int | None = self.database.rows(query, [self.kind])[0][0]
        return found

    def refuse_nulls(self) -> None:
        """Raise ConfigError if the cursor is NULL in a row, which therefore has no position."""
        if not self.cursor.nullable:
            return
        query = f"SELECT {self.cursor_sql} FROM {self.sql} WHERE {self.cursor_sql} IS NULL"
        if self.database.rows(query, [self.kind], most=1):
            raise ConfigError(
                f"cursor {self.cursor.name} of {self.label} is NULL in some rows, which therefore have no position.",
                hint="Fill them, choose another cursor, or read a view without them.",
            )

    def identity(self) -> str:
        """Return a text that identifies the table.

        In PostgreSQL, it changes if the table is recreated under the same name. In another database it does not,
        since it consists of the product, the catalog and the table's name.
        """
        query = self.dialect.identity(self.sql)
        if query is None:
            return f"{self.dialect.product}/{self.database.catalog}/{self.label}"
        return str(self.database.rows(query, [ResultKind.TEXT])[0][0])


def look_up(database: Database, name: str, cursor: str, wanted: Sequence[str]) -> Table:
    """Return the pipeline's table, with its columns as the driver describes them.

    :param database: connection to the database
    :param name: name as written in the pipeline
    :param cursor: name of the cursor column
    :param wanted: names of the columns to read; empty for all columns
    :raises ConfigError: if the table does not exist or cannot be read, lacks a column, or its cursor has an unsuitable
        type
    """
    dialect = database.dialect
    sql, label = dialect.table(name), ".".join(split_name(name))
    try:
        driver_columns = database.columns(f"SELECT * FROM {sql} WHERE 1 = 0")
    except SourceError as error:
        if error.recoverable:
            raise
        raise ConfigError(
            f"source table {label} cannot be read: {error.message}",
            hint="Check source.table (catalog.schema.table, schema.table or table, in the database's letter case, "
            "since it is quoted) and the rights of the connection's user.",
        ) from error
    columns = {item.name: dialect.column(item) for item in driver_columns}
    missing = [item for item in (*wanted, cursor) if item not in columns]
    if missing:
        raise ConfigError(
            f"source table {label} has no column {', '.join(missing)}.", hint=f"Its columns are: {', '.join(columns)}."
        )
    kind = columns[cursor].cursor
    if kind is None:
        raise ConfigError(
            f"cursor {cursor} of {label} has type {columns[cursor].type}.",
            hint="A cursor must be an integer of up to 18 digits, a date, or a timestamp with or without time zone.",
        )
    return Table(database, label, sql, columns[cursor], kind, [columns[item] for item in wanted or columns])
