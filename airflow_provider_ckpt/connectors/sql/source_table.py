"""The table that an sql source reads, and queries of its rows by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sql.columns import CURSOR_KINDS, Column, Kind, Table
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.names import split_name
from airflow_provider_ckpt.connectors.sql.table_clause import table_clause
from airflow_provider_ckpt.connectors.sql.times import position_of
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import START, Range

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.connectors.source_protocol import RecordShape
    from airflow_provider_ckpt.connectors.sql.connector import SqlSourceSection

_MAX_POSITION = 2**63 - 1


@dataclass(frozen=True)
class WholeTable:
    """A table with the columns that are read.

    :param database: its database
    :param table: the table
    :param columns: the columns to read, in order
    """

    database: Database
    table: Table
    columns: Sequence[Column]

    @property
    def label(self) -> str:
        """Schema and name of the table, which is also the id of the source's only partition."""
        return self.table.label

    @cached_property
    def clause(self) -> sa.TableClause:
        """SQLAlchemy's object for the table, with all its columns."""
        return table_clause(self.table, list(self.table.by_name))

    def columns_of(self, shape: RecordShape, batch: str) -> list[Column]:
        """Return the table's columns that a record shape names, in the order of the shape.

        :param shape: the columns as they were at planning
        :param batch: key of the batch that is read, for the error
        :raises SourceError: if a column has another type than at planning, or is gone
        """
        found = [self.table.by_name.get(name) for name, _ in shape.columns]
        pairs = zip(found, shape.columns, strict=True)
        changed = [name for column, (name, spark) in pairs if column is None or column.spark != spark]
        if changed:
            raise SourceError(
                f"columns {', '.join(changed)} of {self.label} have other types than at planning.",
                batch=batch,
                hint="Start a new run.",
            )
        return [column for column in found if column is not None]

    def values(self, columns: Sequence[Column]) -> list[sa.ColumnElement[Any]]:
        """Return the expressions by which columns are read without loss, for :meth:`.SqlDialect.fetch`."""
        dialect = self.database.dialect
        return [
            dialect.read_value(column, self.clause.c[column.name]).label(f"ckpt_{at}")
            for at, column in enumerate(columns)
        ]

    def count_up_to(self, connection: sa.Connection, most: int) -> int:
        """Return the number of visible rows, or ``most`` if there are more.

        :param connection: an open connection
        :param most: number at which counting stops
        """
        import sqlalchemy as sa

        rows = sa.select(sa.literal(1).label("one")).select_from(self.clause).limit(most).subquery()
        return int(connection.execute(sa.select(sa.func.count()).select_from(rows)).scalar() or 0)


@dataclass(frozen=True)
class SourceTable(WholeTable):
    """A table that is read by a cursor.

    :param cursor: the cursor column
    """

    cursor: Column

    @property
    def at(self) -> sa.ColumnClause[Any]:
        """SQLAlchemy's object for the cursor column."""
        found: sa.ColumnClause[Any] = self.clause.c[self.cursor.name]
        return found

    def within(self, start: int, end: int) -> sa.ColumnElement[bool]:
        """Return the SQL condition for the rows in a range of positions.

        :param start: first position of the range
        :param end: position after the range
        """
        import sqlalchemy as sa

        value = self.database.dialect.cursor_value
        low, high = value(self.cursor, start), value(self.cursor, end)
        conditions = [self.at >= low] if low is not None and start != START else []
        if high is not None:
            conditions.append(self.at < high)
        return sa.and_(self.at.is_not(None), *conditions)

    def rows(self, start: int, end: int) -> sa.Select[Any]:
        """Return a query that selects the cursor value of each row in a range, in order.

        :param start: first position of the range
        :param end: position after the range
        """
        import sqlalchemy as sa

        return sa.select(self.at).where(self.within(start, end)).order_by(self.at)

    def greatest(self, connection: sa.Connection) -> int | None:
        """Return the greatest position of all visible rows; None if there are none.

        :param connection: an open connection
        :raises SourceError: if the cursor has reached the largest number, so that no position can follow
        """
        import sqlalchemy as sa

        found = connection.execute(sa.select(sa.func.max(self.at))).scalar()
        position = None if found is None else self.position(found)
        if position is not None and position >= _MAX_POSITION:
            raise SourceError(
                f"cursor {self.cursor.name} of {self.label} has reached the largest 64-bit number, so no greater value "
                "can follow.",
                hint="Choose another cursor column.",
            )
        return position

    def position(self, value: Any) -> int:
        """Return the position of a cursor value.

        :param value: the value as the driver returns it
        :raises SourceError: if the value is not a date, such as ``0000-00-00``
        """
        if self.cursor.kind is Kind.INTEGER:
            return int(value)
        if isinstance(value, str):
            raise SourceError(
                f"cursor {self.cursor.name} of {self.label} is {value} in some rows, which is no date.",
                hint="Correct these rows, or read a view without them.",
            )
        return position_of(value)

    def count(self, connection: sa.Connection, start: int, end: int, most: int | None = None) -> int:
        """Return the number of visible rows in a range.

        :param connection: an open connection
        :param start: first position of the range
        :param end: position after the range
        :param most: number at which counting stops; None to count all
        """
        import sqlalchemy as sa

        held = sa.select(self.at).where(self.within(start, end)).limit(most).subquery()
        return int(connection.execute(sa.select(sa.func.count()).select_from(held)).scalar() or 0)

    def positions(self, connection: sa.Connection, span: Range) -> list[int]:
        """Return the positions of the visible rows in a range, in order.

        :param connection: an open connection
        :param span: the range
        """
        return [self.position(value) for (value,) in connection.execute(self.rows(span.start, span.end))]

    def refuse_bad_cursors(self, connection: sa.Connection) -> None:
        """Raise ConfigError if the cursor has no position in some rows: it is NULL, or a value of another type.

        :param connection: an open connection
        """
        import sqlalchemy as sa

        condition = self.database.dialect.bad_cursor(self.cursor, self.at)
        if condition is None:
            return
        query = sa.select(sa.literal(1)).select_from(self.clause).where(condition).limit(1)
        if connection.execute(query).first() is not None:
            raise ConfigError(
                f"cursor {self.cursor.name} of {self.label} is NULL, or not of type {self.cursor.type_text}, in some "
                "rows, which therefore have no position.",
                hint="Correct them, choose another cursor, or read a view without them.",
            )


def look_up_whole(
    database: Database, connection: sa.Connection, section: SqlSourceSection, *further: str
) -> WholeTable:
    """Return the pipeline's table as it is now, with the columns to read.

    :param database: the source's database
    :param connection: its open connection
    :param section: the section ``source``
    :param further: other columns that the table must have
    :raises ConfigError: if the table does not exist, lacks a column, or a column cannot be read
    """
    table = database.dialect.find_table(connection, *split_name(section.table))
    if table is None:
        raise ConfigError(
            f"source table {section.table} does not exist in connection {database.known.id!r}.",
            hint="Check source.table and the rights of the connection's user.",
        )
    known = table.by_name
    missing = [name for name in (*section.columns, *further) if name not in known]
    if missing:
        raise ConfigError(
            f"source table {table.label} has no column {', '.join(missing)}.",
            hint=f"Its columns are: {', '.join(known)}.",
        )
    columns = [known[name] for name in section.columns or known]
    unreadable = [f"{column.name} {column.type_text}" for column in columns if column.kind is Kind.UNSUPPORTED]
    if unreadable:
        raise ConfigError(
            f"source table {table.label} has columns that cannot be read: {', '.join(unreadable)}.",
            hint="Leave them out by source.columns, or convert them in a view.",
        )
    return WholeTable(database, table, columns)


def look_up(database: Database, connection: sa.Connection, section: SqlSourceSection) -> SourceTable:
    """Return the pipeline's table as it is now, with its cursor.

    :param database: the source's database
    :param connection: its open connection
    :param section: the section ``source``
    :raises ConfigError: if the table does not exist or lacks a column, if a column cannot be read, or if the cursor has
        a type that does not order rows
    """
    found = look_up_whole(database, connection, section, section.cursor)
    cursor = found.table.by_name[section.cursor]
    if cursor.kind not in CURSOR_KINDS or not database.dialect.can_order(cursor):
        raise ConfigError(
            f"cursor {cursor.name} of {found.label} has type {cursor.type_text}.",
            hint="A cursor must be an integer; in MySQL and MariaDB, it may also be a date or a time.",
        )
    return SourceTable(database, found.table, found.columns, cursor)
