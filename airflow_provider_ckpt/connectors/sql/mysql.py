"""Implement the dialect of MySQL and MariaDB, with the driver PyMySQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sql import mysql_columns, mysql_locks
from airflow_provider_ckpt.connectors.sql.columns import CURSOR_KINDS, Column, Kind, Table
from airflow_provider_ckpt.connectors.sql.dialect import SqlDialect
from airflow_provider_ckpt.connectors.sql.failures import Failure
from airflow_provider_ckpt.connectors.sql.incoming_values import from_texts
from airflow_provider_ckpt.connectors.sql.mysql_errors import classify
from airflow_provider_ckpt.connectors.sql.mysql_server import (
    is_on,
    server_problems,
    server_settings,
    transactions_elsewhere,
)
from airflow_provider_ckpt.connectors.sql.mysql_table import find_table, quote, referring_tables, stored_size
from airflow_provider_ckpt.connectors.sql.mysql_tls import tls_arguments

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError

    from airflow_provider_ckpt.config.database.catalog import Catalog
    from airflow_provider_ckpt.connectors.sql.column_changes import ColumnChange

_SQL_MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
"""SQL modes of each session: a value that does not fit is an error, and 0 in a numbered column is stored as 0.

Without the mode NO_BACKSLASH_ESCAPES, backslashes in texts escape characters.
"""

_SETTINGS = f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00', group_concat_max_len = 1048576"

_TIMEOUTS = ("connect_timeout", "read_timeout", "write_timeout")

_MAX_LANES = 200
"""Greatest number of sessions of one run that can be marked by a named lock, so that a newer run can end them.

Further sessions are not marked; a newer run waits for their transactions.
"""


class MySqlDialect(SqlDialect):
    """Dialect of MySQL 8 and MariaDB 10.6 or newer, with tables of InnoDB."""

    name = "mysql"
    label = "MySQL or MariaDB"
    tested = True
    connection_types = ("mysql", "mariadb")
    drivername = "mysql+pymysql"
    install = "airflow-provider-ckpt[mysql] (PyMySQL)"
    changes_columns = True
    sees_transactions = True

    def url(self, connection: Connection) -> sa.URL:
        """Return SQLAlchemy's address of the database, with which texts are sent as utf8mb4."""
        return super().url(connection).update_query_dict({"charset": "utf8mb4"})

    def namespace(self, connection: Connection) -> tuple[str, str | None]:
        """Return OpenLineage's namespace with host and port, and the name of the connection's database."""
        return f"mysql://{connection.host or 'localhost'}:{connection.port or 3306}", connection.schema

    def connect_args(self, connection: Connection) -> dict[str, Any]:
        """Return the driver's arguments from the connection's extra: TLS, timeouts, a socket, and ``local_infile``."""
        extra = dict(connection.extra)
        found: dict[str, Any] = {"connect_timeout": 10}
        found |= {key: int(extra[key]) for key in _TIMEOUTS if key in extra}
        if extra.get("unix_socket"):
            found["unix_socket"] = str(extra["unix_socket"])
        found |= tls_arguments(extra)
        found["local_infile"] = is_on(extra.get("local_infile", True))
        return found

    def prepare(self, engine: sa.Engine) -> None:
        """Configure an engine's connections: strict mode, time zone UTC, and no sending of files of this machine.

        :param engine: the engine; listeners are registered on it, so that each connection that it opens is a
            :class:`.MemoryConnection`
        """
        import sqlalchemy as sa

        from airflow_provider_ckpt.connectors.sql.mysql_load import MemoryConnection

        @sa.event.listens_for(engine, "do_connect")
        def connect(_: Any, __: Any, args: Any, named: Any) -> Any:
            return MemoryConnection(*args, **named)

        @sa.event.listens_for(engine, "connect")
        def configure(opened: Any, _: Any) -> None:
            with opened.cursor() as cursor:
                cursor.execute(_SETTINGS)

    def classify(self, error: DBAPIError) -> Failure:
        """Return the meaning of an exception, judged by the server's error number."""
        return classify(error)

    def find_table(self, connection: sa.Connection, schema: str | None, name: str) -> Table | None:
        """Return a table or view with its columns and keys from ``information_schema``; None if it does not exist.

        :param connection: an open connection
        :param schema: the table's database; None for the connection's default
        :param name: the table's name
        """
        return find_table(connection, schema, name)

    def catalog(self, connection: sa.Connection) -> Catalog:
        """Return the tables of all databases of the server that the user may see, except the server's own databases."""
        from airflow_provider_ckpt.connectors.sql.mysql_catalog import read_catalog

        return read_catalog(connection)

    def key_problem(self, table: Table, key: Sequence[str]) -> tuple[str, str] | None:
        """Return why rows cannot be replaced by a key, and the remedy; None if the table has no other unique key.

        ``ON DUPLICATE KEY UPDATE`` would replace rows by any other unique key as well.

        :param table: the target
        :param key: columns of a unique key of the table
        """
        others = [unique for unique in (*table.unique, *table.other_unique) if set(unique) != set(key)]
        if not others:
            return None
        names = "; ".join(", ".join(unique) for unique in others)
        problem = (
            f"target {table.label} has other unique keys than {', '.join(key)} ({names}), by which "
            "ON DUPLICATE KEY UPDATE would replace rows, too"
        )
        return problem, "Drop those keys, or write to a table without them."

    def replacement_problem(self, connection: sa.Connection, table: Table) -> tuple[str, str] | None:
        """Return the problem of a table to which foreign keys refer, and the remedy; None if there are none.

        With each deleted row, InnoDB checks the foreign keys at once, before new rows can be inserted, or changes the
        rows that refer to the deleted row.

        :param connection: an open connection
        :param table: the target
        """
        found = referring_tables(connection, table)
        if not found:
            return None
        problem = (
            f"foreign keys of {', '.join(found)} refer to target {table.label}, and InnoDB enforces them when its rows "
            "are deleted, before the new rows are there"
        )
        return problem, "Drop these foreign keys, or write to a table without them."

    def create_staging(self, connection: sa.Connection, target: Table, name: str) -> None:
        """Create an empty table with columns, checks and indexes of a target; foreign keys and triggers are left out.

        :param connection: an open connection
        :param target: the target
        :param name: name of the new table
        """
        place = quote(target.schema)
        statement = f"CREATE TABLE {place}.{quote(name)} LIKE {place}.{quote(target.name)}"
        connection.exec_driver_sql(statement.replace("%", "%%"))

    def begin_replacement(self, connection: sa.Connection) -> None:
        """Set REPEATABLE READ for the next transaction, in which a deletion of all rows locks the gaps between them.

        Until the commit, other sessions that add rows wait.

        :param connection: a connection outside of any transaction
        """
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def server_problems(self, connection: sa.Connection) -> tuple[Sequence[tuple[str, str]], Sequence[str]]:
        """Return reasons why the server is unsuitable for a target, each with its remedy, and warnings about settings.

        Unsuitable are a read-only server, a cluster with several primaries, and a statement-based binary log. The
        warnings are about settings with which a crash may lose commits. See :func:`~.mysql_server.server_problems`.

        :param connection: an open connection
        """
        return server_problems(server_settings(connection))

    def server_identity(self, connection: sa.Connection) -> str:
        """Return the server's id, or its host if it has none; see :meth:`.SqlDialect.server_identity`."""
        known = server_settings(connection)
        return known.get("server_uuid") or known.get("server_uid") or str(connection.engine.url.host or "")

    def server_time(self, connection: sa.Connection) -> datetime:
        """Return the server's present time in UTC, which is the zone of each session."""
        found: datetime = connection.exec_driver_sql("SELECT CURRENT_TIMESTAMP(6)").scalar_one()
        return found.replace(tzinfo=UTC)

    def table_options(self) -> Mapping[str, Any]:
        """Return the options that create bookkeeping tables in InnoDB with utf8mb4."""
        return {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

    def limit_lock_wait(self, connection: sa.Connection, seconds: int) -> None:
        """Limit the time for which a session waits for locks, by ``innodb_lock_wait_timeout``.

        :param connection: the session
        :param seconds: longest wait
        """
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {seconds:d}")

    def mark_session(self, connection: sa.Connection, mark: str) -> None:
        """Mark a session by a named lock, which the server releases when the session ends.

        :param connection: the session
        :param mark: text of pipeline and epoch
        """
        for number in range(_MAX_LANES):
            if connection.exec_driver_sql(f"SELECT GET_LOCK('ckpt:{mark}:{number}', 0)").scalar() == 1:
                return

    def limit_ddl_wait(self, connection: sa.Connection) -> None:
        """Limit the time for which a session waits for metadata locks to ten seconds, by ``lock_wait_timeout``.

        :param connection: the session
        """
        mysql_locks.limit_ddl_wait(connection)

    def lock_holders(self, connection: sa.Connection, schema: str, name: str, mark: str) -> Sequence[str]:
        """Return the sessions that may hold a table's metadata lock, except those with a mark.

        :param connection: the session whose statement has waited in vain
        :param schema: the table's database
        :param name: the table's name
        :param mark: text that :meth:`mark_session` was given for the run's own sessions
        """
        return mysql_locks.lock_holders(connection, schema, name, _marked_sessions(connection, mark))

    def end_sessions(self, connection: sa.Connection, mark: str) -> None:
        """Kill the sessions that hold the named locks of a mark; sessions of other users are left.

        A user needs no right to kill sessions of its own.

        :param connection: session that kills the others
        :param mark: text that :meth:`mark_session` was given
        """
        from sqlalchemy.exc import DBAPIError

        for session in _marked_sessions(connection, mark):
            try:
                connection.exec_driver_sql(f"KILL {session:d}")
            except DBAPIError:  # the session has ended, or is another user's; the fence goes on waiting
                continue

    def column_for(self, values: Column) -> Column:
        """Return the column that a table gets for values of a source; texts get ``utf8mb4``.

        :param values: a description of the values, see :func:`.column_changes.source_values`
        """
        return mysql_columns.column_for(values)

    def alter_columns(self, connection: sa.Connection, table: Table, changes: Sequence[ColumnChange]) -> None:
        """Change columns of a table by one ALTER TABLE, which waits ten seconds at most for open transactions.

        :param connection: an open connection, whose transaction is committed
        :param table: the table
        :param changes: the changes
        """
        mysql_columns.alter_columns(connection, table, changes)

    def lock_columns(self, connection: sa.Connection, mark: str) -> bool:
        """Take a named lock, which the server releases when the session ends, after its last statement.

        :param connection: the session
        :param mark: text that identifies the pipeline
        """
        return mysql_columns.lock_columns(connection, mark)

    def end_column_change(self, connection: sa.Connection, mark: str) -> None:
        """Kill the session that has the named lock; an ALTER TABLE that it executes is undone or completed first.

        :param connection: session that kills the other
        :param mark: text that :meth:`lock_columns` was given
        """
        mysql_columns.end_column_change(connection, mark)

    def write(self, connection: sa.Connection, target: Table, rows: pa.Table, key: Sequence[str]) -> int:
        """Insert rows by LOAD DATA LOCAL from memory if that is allowed and faster; else, and for upserts, by INSERT.

        :param connection: the connection
        :param target: the target
        :param rows: converted columns, with the target's names
        :param key: key columns of an upsert; empty to insert
        :return: number of rows that the server reports as taken
        """
        from airflow_provider_ckpt.connectors.sql import mysql_load

        if not key and mysql_load.is_worthwhile(connection, rows):
            return mysql_load.load(connection, target, rows)
        return mysql_load.insert(connection, target, rows, key)

    def find_long_row(self, connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> tuple[int, str] | None:
        """Return the index of a row that exceeds ``max_allowed_packet``, and a clause with both sizes; None if all fit.

        :param connection: an open connection
        :param rows: the rows, as sequences of values
        """
        from airflow_provider_ckpt.connectors.sql import mysql_load

        return mysql_load.find_long_row(connection, rows)

    def running_transactions(self, connection: sa.Connection) -> frozenset[str] | None:
        """Return names of InnoDB's transactions except this session's; None without the right ``PROCESS``.

        The server answers from a copy of its list of transactions, which may be old. So the query is repeated until the
        copy contains a transaction that this session has just begun.

        :param connection: a connection outside of any transaction
        """
        from airflow_provider_ckpt.connectors.sql.mysql_transactions import running_transactions

        return running_transactions(connection)

    def transactions_elsewhere(self, connection: sa.Connection) -> str | None:
        """Return a clause that says that the server is a replica, or one of several primaries; None if it is neither.

        :param connection: an open connection
        """
        return transactions_elsewhere(connection, server_settings(connection))

    def next_number(self, connection: sa.Connection, table: Table, column: Column) -> int | None:
        """Return the table's next AUTO_INCREMENT value; None if the column is not numbered.

        :param connection: an open connection
        :param table: the table
        :param column: the column
        """
        if not column.numbered:
            return None
        name = f"{quote(table.schema)}.{quote(table.name)}".replace("%", "%%")
        shown = connection.exec_driver_sql(f"SHOW CREATE TABLE {name}").one()[1]
        found = str(shown).rpartition(" AUTO_INCREMENT=")[2].partition(" ")[0]
        return int(found) if found.isdecimal() else 1

    def stored_size(self, connection: sa.Connection, table: Table) -> tuple[int, int] | None:
        """Return the size of a table in bytes, long texts and blobs included, and its number of rows; None for a view.

        Both are from the server's statistics, which may be out of date.

        :param connection: an open connection
        :param table: the table
        """
        return stored_size(connection, table)

    def bad_cursor(self, column: Column, cursor: sa.ColumnElement[Any]) -> sa.ColumnElement[bool] | None:
        """Return the SQL condition for rows whose cursor is NULL or a zero date; None if there cannot be any.

        :param column: the cursor column
        :param cursor: the column in SQLAlchemy's statements
        """
        import sqlalchemy as sa

        null = super().bad_cursor(column, cursor)
        if column.kind is Kind.INTEGER:
            return null
        zero = cursor < sa.literal_column("'0001-01-01'")
        return zero if null is None else sa.or_(null, zero)

    def can_order(self, column: Column) -> bool:
        """Return whether a column can be a cursor: it is an integer, a date or a time."""
        return column.kind in CURSOR_KINDS

    def read_value(self, column: Column, value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return the SQL expression by which a column is read in full: bits as a number, and all digits of a float.

        :param column: the column
        :param value: the column in SQLAlchemy's statements
        """
        import sqlalchemy as sa
        from sqlalchemy.dialects.mysql import INTEGER

        if column.kind is Kind.BIT:
            return sa.cast(value, INTEGER(unsigned=True))
        if column.kind is Kind.FLOAT:
            return value + sa.literal_column("0e0")
        return sa.cast(value, sa.CHAR()) if column.kind is Kind.OTHER_TEXT else value

    def fetch(self, connection: sa.Connection, query: sa.Select[Any], columns: Sequence[Column]) -> list[pa.Array]:
        """Return the result of a query as Arrow arrays, converted by column from the texts that the server sends.

        :param connection: an open connection
        :param query: the query
        :param columns: the columns that it selects
        :raises ValueMismatchError: if a value is not of its column's type
        """
        from airflow_provider_ckpt.connectors.sql.mysql_load import fetch_columns

        found = fetch_columns(connection, query)
        return [from_texts(column, values) for column, values in zip(columns, found, strict=True)]


def _marked_sessions(connection: sa.Connection, mark: str) -> list[int]:
    """Return the ids of the sessions that hold the named locks of a mark."""
    places = ", ".join(f"IS_USED_LOCK('ckpt:{mark}:{number}')" for number in range(_MAX_LANES))
    return [int(session) for session in connection.exec_driver_sql(f"SELECT {places}").one() if session is not None]
