"""Dialect of SQLite, whose database is a file on this machine to which one transaction writes at a time."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as quote_path
from urllib.parse import unquote

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sql import sqlite_columns, sqlite_staging
from airflow_provider_ckpt.connectors.sql.columns import Column, Kind, Table
from airflow_provider_ckpt.connectors.sql.database import WRITES
from airflow_provider_ckpt.connectors.sql.dialect import SqlDialect
from airflow_provider_ckpt.connectors.sql.failures import Failure, first_line
from airflow_provider_ckpt.connectors.sql.names import quote
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError

    from airflow_provider_ckpt.connectors.sql.column_changes import ColumnChange

_BUSY_MS = 60_000
"""Maximum time in milliseconds for which a transaction waits for another one to end; then it fails."""

_SETTINGS = ("PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON")
_NUMERIC_DIGITS = 15
"""Number of digits that SQLite keeps in a column of affinity NUMERIC, which stores a number as a double."""

_CANNOT_OPEN_HINT = (
    "The connection's host is the path of the file as this machine sees it: the file must exist, and the user "
    "of the process needs the rights to read and write it and to create files in its directory."
)
_SIZE = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_HIDDEN, _GENERATED = 1, (2, 3)


class SqliteDialect(SqlDialect):
    """Dialect of SQLite 3.35 or newer."""

    name = "sqlite"
    label = "SQLite"
    tested = True
    connection_types = ("sqlite",)
    drivername = "sqlite+pysqlite"
    isolation = None
    transactional_ddl = True
    changes_columns = True

    def url(self, connection: Connection) -> sa.URL:
        """Return SQLAlchemy's address of the file: a URI with which a missing file is not created."""
        import sqlalchemy as sa

        address = f"file:{quote_path(_path(connection))}"
        return sa.URL.create(self.drivername, database=address, query={"mode": "rw", "uri": "true"})

    def namespace(self, connection: Connection) -> tuple[str, str | None]:
        """Return the file's path as OpenLineage's namespace, and None: no database name precedes a table's."""
        return f"sqlite://{_path(connection)}", None

    def address(self, connection: Connection) -> str:
        """Return the file's path as an address for messages."""
        return self.namespace(connection)[0]

    def connect_args(self, connection: Connection) -> dict[str, Any]:  # noqa: ARG002
        """Return arguments with which the driver does not begin transactions, and any thread can use a connection."""
        return {"isolation_level": None, "check_same_thread": False, "timeout": _BUSY_MS / 1000}

    def prepare(self, engine: sa.Engine) -> None:
        """Register listeners that begin each transaction explicitly.

        A transaction that writes locks the file at its beginning, so that no other transaction can write.
        """
        import sqlalchemy as sa

        @sa.event.listens_for(engine, "connect")
        def configure(opened: Any, _: Any) -> None:
            for statement in _SETTINGS:
                opened.execute(statement)

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get(WRITES)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    def classify(self, error: DBAPIError) -> Failure:
        """Return the meaning of an exception, judged by SQLite's error code."""
        code = getattr(error.orig, "sqlite_errorcode", 0)
        hint = _CANNOT_OPEN_HINT if code & 0xFF == sqlite3.SQLITE_CANTOPEN else None
        return Failure(_state(code), first_line(error), *_of_row(code), hint)

    def find_table(self, connection: sa.Connection, schema: str | None, name: str) -> Table | None:
        """Return a table or view with its columns and keys, read by PRAGMA statements; None if it does not exist.

        :param connection: an open connection
        :param schema: the table's schema; None for ``main``
        :param name: the table's name
        """
        place = schema or "main"
        query = f"SELECT type, name FROM {quote(place)}.sqlite_schema WHERE lower(name) = lower(?)"
        kinds = [row for row in connection.exec_driver_sql(query, (name,)) if row[0] in ("table", "view")]
        if not kinds:
            return None
        kind, exact = kinds[0]
        info = connection.exec_driver_sql(f"PRAGMA {quote(place)}.table_xinfo({quote(exact)})").all()
        primary = [row.name for row in sorted(info, key=lambda row: row.pk) if row.pk]
        numbered = {primary[0]} if len(primary) == 1 and self._is_rowid(info, primary[0]) else set()
        columns = [_column(row, numbered=row.name in numbered) for row in info if row.hidden != _HIDDEN]
        not_null = {column.name for column in columns if not column.nullable}
        keys = [tuple(primary)] if primary and set(primary) <= not_null else []
        others: list[tuple[str, ...]] = []
        for index in connection.exec_driver_sql(f"PRAGMA {quote(place)}.index_list({quote(exact)})").all():
            if index.unique:
                rows = connection.exec_driver_sql(f"PRAGMA {quote(place)}.index_info({quote(index.name)})").all()
                key = tuple(row.name for row in rows)
                (keys if not index.partial and set(key) <= not_null else others).append(key)
        problem = None if kind == "table" else (f"target {exact} is a view, not a table", "Name a table.")
        return Table(place, exact, columns, list(dict.fromkeys(keys)), others, kind == "view", problem)

    @staticmethod
    def _is_rowid(info: Sequence[Any], name: str) -> bool:
        return any(row.name == name and row.type.upper() == "INTEGER" for row in info)

    def key_problem(self, table: Table, key: Sequence[str]) -> tuple[str, str] | None:
        """Return None: any unique key is suitable, since ``ON CONFLICT`` names the key by which rows are replaced."""
        del table, key
        return None

    def replacement_problem(self, connection: sa.Connection, table: Table) -> tuple[str, str] | None:
        """Return the reason why a refresh cannot replace the rows of a target, and the remedy; None if it can.

        A refresh cannot replace the rows if the target is a virtual table or has foreign keys, or if foreign keys with
        ON DELETE refer to the target.

        :param connection: an open connection
        :param table: the target
        """
        return sqlite_staging.replacement_problem(connection, table)

    def create_staging(self, connection: sa.Connection, target: Table, name: str) -> None:
        """Create an empty table with the columns, checks and unique keys of a target; the target has no foreign keys.

        :param connection: an open connection
        :param target: the target
        :param name: name of the new table
        """
        for statement in sqlite_staging.staging_statements(connection, target, name) or ():
            connection.exec_driver_sql(statement)

    def begin_replacement(self, connection: sa.Connection) -> None:
        """Begin a transaction that checks foreign keys when it commits.

        :param connection: a connection outside of any transaction, whose next transaction writes
        """
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")

    def server_identity(self, connection: sa.Connection) -> str:
        """Return the path of the database file."""
        return str(connection.exec_driver_sql("PRAGMA database_list").one()[2])

    def fence_lock(self, select: sa.Select[Any]) -> sa.Select[Any]:
        """Return the query of the fence's row unchanged: a transaction that writes has locked the whole file."""
        return select

    def column_for(self, values: Column) -> Column:
        """Return the column that a table gets for values of a source; decimals of many digits become texts.

        :param values: a description of the values, see :func:`.column_changes.source_values`
        """
        return sqlite_columns.column_for(values, _NUMERIC_DIGITS)

    def column_change_problem(self, table: Table, change: ColumnChange) -> tuple[str, str] | None:
        """Return the reason why SQLite cannot make a change of a column, and the remedy; None if it can.

        :param table: the table
        :param change: the change
        """
        return sqlite_columns.column_change_problem(table, change)

    def alter_columns(self, connection: sa.Connection, table: Table, changes: Sequence[ColumnChange]) -> None:
        """Rename and add columns in the open transaction.

        :param connection: the connection with the transaction
        :param table: the table
        :param changes: the changes
        """
        sqlite_columns.alter_columns(connection, table, changes)

    def insert(self, table: Any, key: Sequence[str]) -> Any:
        """Return the statement that writes one row: an INSERT, with ``ON CONFLICT`` for an upsert.

        :param table: the target as SQLAlchemy's ``TableClause``
        :param key: key columns of an upsert; empty to insert
        """
        from sqlalchemy.dialects.sqlite import insert

        statement = insert(table)
        if not key:
            return statement
        others = [column.name for column in table.columns if column.name not in key]
        if not others:
            return statement.on_conflict_do_update(key, set_={key[0]: statement.excluded[key[0]]})
        return statement.on_conflict_do_update(key, set_={name: statement.excluded[name] for name in others})

    def write(self, connection: sa.Connection, target: Table, rows: pa.Table, key: Sequence[str]) -> int:
        """Write rows with decimals and times as texts, the form in which SQLite stores them.

        :param connection: the connection
        :param target: the target
        :param rows: converted columns, with the target's names
        :param key: key columns of an upsert; empty to insert
        :return: number of rows that SQLite reports as written
        """
        return super().write(connection, target, _as_stored(rows), key)

    def bad_cursor(self, column: Column, cursor: sa.ColumnElement[Any]) -> sa.ColumnElement[bool] | None:
        """Return the SQL condition for rows whose cursor is not an integer; None for the row id, which always is one.

        :param column: the cursor column
        :param cursor: the column in SQLAlchemy's statements
        """
        import sqlalchemy as sa

        return None if column.numbered else sa.func.typeof(cursor) != "integer"

    def closes_at_once(self) -> bool:
        """Return True: no row can appear below the greatest cursor value, since there is one writer at a time."""
        return True

    def next_number(self, connection: sa.Connection, table: Table, column: Column) -> int | None:
        """Return the number after the greatest ever used in a table with AUTOINCREMENT.

        None if no number was used yet, and for any other table.

        :param connection: an open connection
        :param table: the table
        :param column: the column
        """
        if not column.numbered:
            return None
        names = f"SELECT 1 FROM {quote(table.schema)}.sqlite_schema WHERE name = 'sqlite_sequence'"
        if connection.exec_driver_sql(names).first() is None:
            return None
        query = f"SELECT seq FROM {quote(table.schema)}.sqlite_sequence WHERE name = ?"
        found = connection.exec_driver_sql(query, (table.name,)).scalar()
        return None if found is None else int(found) + 1

    def reused_numbers(self, connection: sa.Connection, table: Table, column: Column) -> str | None:
        """Return a warning for a table without AUTOINCREMENT, where a removed row's number may be reused; else None.

        :param connection: an open connection
        :param table: the table
        :param column: the cursor column
        """
        if not column.numbered:
            return None
        query = f"SELECT sql FROM {quote(table.schema)}.sqlite_schema WHERE name = ?"
        sql = str(connection.exec_driver_sql(query, (table.name,)).scalar() or "")
        if re.search(r"\bAUTOINCREMENT\b", sql, re.IGNORECASE):
            return None
        return (
            f"{table.label} numbers its rows without AUTOINCREMENT: if its newest rows are removed, SQLite gives their "
            f"{column.name} to later rows, which are not read then."
        )


def _path(connection: Connection) -> str:
    """Return the path of the file that a connection names by its host or schema.

    :raises ConfigError: if the path is not absolute
    """
    path = unquote(connection.host or connection.schema or "")
    if not PurePosixPath(path).is_absolute():
        raise ConfigError(
            f"connection {connection.id!r} names no absolute path of a SQLite file, but {path!r}.",
            hint="Write the path as the connection's host.",
        )
    return path


def _state(code: int) -> str | None:
    """Return the SQLSTATE that corresponds to an error code of SQLite; None if there is none."""
    primary = code & 0xFF
    states = {
        sqlite3.SQLITE_CONSTRAINT: "23000",
        sqlite3.SQLITE_MISMATCH: "22000",
        sqlite3.SQLITE_TOOBIG: "54000",
        sqlite3.SQLITE_BUSY: "55P03",
        sqlite3.SQLITE_LOCKED: "55P03",
        sqlite3.SQLITE_FULL: "53100",
        sqlite3.SQLITE_IOERR: "58030",
        sqlite3.SQLITE_CANTOPEN: "42000",
        sqlite3.SQLITE_READONLY: "42501",
        sqlite3.SQLITE_PERM: "42501",
        sqlite3.SQLITE_NOTADB: "42000",
        sqlite3.SQLITE_CORRUPT: "XX001",
    }
    return states.get(primary)


def _of_row(code: int) -> tuple[bool, bool]:
    """Return whether a row's data may be the cause of an error code, and whether its key exists already."""
    duplicates = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
    of_row = code & 0xFF in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
    return of_row, code in duplicates


def _column(row: Any, *, numbered: bool) -> Column:
    """Return a column, whose kind follows from words in its declared type, such as INT, CHAR or TIMESTAMP.

    :param row: row of ``PRAGMA table_xinfo``
    :param numbered: whether SQLite numbers the column
    """
    declared = str(row.type or "")
    upper = declared.upper()
    size = _SIZE.search(upper)
    limits: dict[str, Any] = {}
    if "INT" in upper:
        kind = Kind.INTEGER
    elif any(word in upper for word in ("CHAR", "CLOB", "TEXT", "JSON", "UUID")):
        kind = Kind.TEXT
        limits = {"length": int(size[1]) if size and "CHAR" in upper else None}
    elif "BLOB" in upper or "BINARY" in upper:
        kind = Kind.BINARY
    elif any(word in upper for word in ("REAL", "FLOAT", "DOUBLE")):
        kind = Kind.DOUBLE
    elif "BOOL" in upper:
        kind = Kind.BOOLEAN
    elif "DATETIME" in upper or "TIMESTAMP" in upper:
        kind = Kind.DATETIME
    elif "DATE" in upper:
        kind = Kind.DATE
    elif "DEC" in upper or "NUMERIC" in upper:
        kind = Kind.DECIMAL
        limits = {"precision": int(size[1]), "scale": int(size[2] or 0)} if size else {}
        limits["digits"] = _NUMERIC_DIGITS
    else:
        kind = Kind.TEXT if not upper else Kind.UNSUPPORTED
    return Column(
        row.name,
        kind,
        declared or "without a type",
        not (row.notnull or numbered),
        row.dflt_value is not None or numbered,
        numbered,
        row.hidden in _GENERATED,
        **limits,
    )


def _as_stored(rows: pa.Table) -> pa.Table:
    import pyarrow as pa

    found = []
    for column in rows.columns:
        kind = column.type
        if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            found.append(column.cast(pa.string()))
        else:
            found.append(column)
    return pa.table(found, rows.schema.names)
