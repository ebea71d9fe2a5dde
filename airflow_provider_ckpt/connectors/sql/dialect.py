"""Define the base class of dialects, whose methods contain the database-specific behaviour of source and sink.

A distribution adds a dialect as an entry point of the group ``airflow_provider_ckpt.sql_dialects``; its name is
SQLAlchemy's name of the dialect, its value the import path of a subclass. A dialect sets :attr:`~SqlDialect.tested` to
True once the conformance suite passes; until then, ``delivery: exactly_once`` requires ``sink.untested_dialect: true``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sql.column_ddl import ColumnDdl
from airflow_provider_ckpt.connectors.sql.columns import Column, Kind, Table
from airflow_provider_ckpt.connectors.sql.failures import Failure, first_line
from airflow_provider_ckpt.connectors.sql.incoming_values import from_python
from airflow_provider_ckpt.connectors.sql.table_clause import table_clause
from airflow_provider_ckpt.connectors.sql.times import to_date, to_datetime

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError

    from airflow_provider_ckpt.config.database.catalog import Catalog

_SIZES = {"SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}


class SqlDialect(ColumnDdl):
    """Behaviour of one kind of database; a subclass overrides the methods whose default does not suit its database.

    :cvar name: SQLAlchemy's name of the dialect
    :cvar label: name of the product, for messages
    :cvar tested: whether the conformance suite passes, so that the dialect may deliver exactly once
    :cvar connection_types: types of Airflow connections to this kind of database
    :cvar drivername: SQLAlchemy's name of dialect and driver
    :cvar install: name of the distribution to install if the driver is missing
    :cvar isolation: isolation level of all transactions; None for the driver's default
    :cvar sees_transactions: whether a source can wait for running transactions (:meth:`running_transactions`)
    """

    name: str
    label: str
    tested = False
    connection_types: tuple[str, ...] = ()
    drivername: str
    install = "the driver that SQLAlchemy needs"
    isolation: str | None = "READ COMMITTED"
    sees_transactions = False

    def url(self, connection: Connection) -> sa.URL:
        """Return SQLAlchemy's address of the database; it contains the password.

        :param connection: the Airflow connection
        """
        import sqlalchemy as sa

        known = connection
        return sa.URL.create(self.drivername, known.login, known.password, known.host, known.port, known.schema)

    def namespace(self, connection: Connection) -> tuple[str, str | None]:
        """Return OpenLineage's namespace of the database, and the prefix of table names in it; None for no prefix.

        :param connection: the Airflow connection
        """
        port = f":{connection.port}" if connection.port else ""
        return f"{self.name}://{connection.host or 'localhost'}{port}", connection.schema

    def address(self, connection: Connection) -> str:
        """Return the database's address for messages, without user and password.

        :param connection: the Airflow connection
        """
        namespace, database = self.namespace(connection)
        return f"{namespace}/{database or ''}"

    def connect_args(self, connection: Connection) -> dict[str, Any]:  # noqa: ARG002
        """Return the arguments for the driver's function ``connect`` that :meth:`url` does not contain.

        :param connection: the Airflow connection
        """
        return {}

    def prepare(self, engine: sa.Engine) -> None:
        """Register SQLAlchemy's listeners that configure each new connection and transaction; the base class has none.

        :param engine: SQLAlchemy's engine for the database
        """

    def classify(self, error: DBAPIError) -> Failure:
        """Return the meaning of a driver's exception: SQLSTATE, message, and whether a row's data is the cause.

        The base class judges by SQLAlchemy's class of the exception.

        :param error: SQLAlchemy's exception, which has the driver's as ``orig``
        """
        from sqlalchemy import exc

        text = first_line(error)
        state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
        if isinstance(error, exc.IntegrityError):
            return Failure(state or "23000", text, of_row=True, is_duplicate=True)
        if isinstance(error, exc.DataError):
            return Failure(state or "22000", text, of_row=True)
        return Failure(state, text)

    def find_table(self, connection: sa.Connection, schema: str | None, name: str) -> Table | None:
        """Return a table or view with its columns and keys; None if it does not exist.

        :param connection: an open connection
        :param schema: schema of the table; None for the connection's default
        :param name: name of the table
        """
        import sqlalchemy as sa

        inspector = sa.inspect(connection)
        try:
            described = inspector.get_columns(name, schema)
            primary = tuple(inspector.get_pk_constraint(name, schema)["constrained_columns"])
            keys = [tuple(key["column_names"]) for key in inspector.get_unique_constraints(name, schema)]
            keys += [
                tuple(str(part) for part in index["column_names"])
                for index in inspector.get_indexes(name, schema)
                if index["unique"]
            ]
        except sa.exc.NoSuchTableError:
            return None
        columns = [self.column(item) for item in described]
        nullable = {column.name for column in columns if column.nullable}
        whole = [key for key in ([primary] if primary else []) + keys if not nullable & set(key)]
        others = [key for key in keys if nullable & set(key)]
        is_view = name in inspector.get_view_names(schema)
        return Table(
            schema or inspector.default_schema_name or "",
            name,
            columns,
            list(dict.fromkeys(whole)),
            list(dict.fromkeys(others)),
            is_view,
            self.target_problem(connection, schema, name),
        )

    def catalog(self, connection: sa.Connection) -> Catalog | None:  # noqa: ARG002
        """Return all tables that can be sources, with columns and primary keys; None if they cannot be listed.

        :param connection: an open connection
        """
        return None

    def column(self, described: Any) -> Column:
        """Return the :class:`.Column` for a column that SQLAlchemy's inspector describes.

        :param described: an element of the list that ``Inspector.get_columns`` returns
        """
        import sqlalchemy as sa

        kind = described["type"]
        common: dict[str, Any] = {
            "name": described["name"],
            "type_text": str(kind),
            "nullable": bool(described["nullable"]),
            "filled": described.get("default") is not None or bool(described.get("identity")),
            "numbered": bool(described.get("identity")) or described.get("autoincrement") is True,
            "generated": bool(described.get("computed")),
        }
        if isinstance(kind, sa.Integer):
            bits = next((bits for name, bits in _SIZES.items() if name in str(kind).upper()), 63)
            return Column(kind=Kind.INTEGER, low=-(2**bits), high=2**bits - 1, **common)
        if isinstance(kind, sa.Float):
            return Column(kind=Kind.DOUBLE, **common)
        if isinstance(kind, sa.Numeric):
            return Column(kind=Kind.DECIMAL, precision=kind.precision, scale=kind.scale or 0, **common)
        if isinstance(kind, sa.String):
            return Column(kind=Kind.TEXT, length=kind.length, **common)
        if isinstance(kind, sa.LargeBinary | sa.BINARY | sa.VARBINARY):
            return Column(kind=Kind.BINARY, length=getattr(kind, "length", None), **common)
        if isinstance(kind, sa.DateTime):
            zoned = bool(kind.timezone)
            return Column(kind=Kind.TIMESTAMP if zoned else Kind.DATETIME, **common)
        simple = ((sa.Boolean, Kind.BOOLEAN), (sa.Date, Kind.DATE))
        found = next((value for type_, value in simple if isinstance(kind, type_)), Kind.UNSUPPORTED)
        return Column(kind=found, **common)

    def target_problem(self, connection: sa.Connection, schema: str | None, name: str) -> tuple[str, str] | None:  # noqa: ARG002
        """Return the reason why a table cannot be a target of exactly-once delivery, and the remedy; None if it can.

        Both are parts of an error message, as those of :meth:`key_problem` are.

        :param connection: an open connection
        :param schema: the table's schema; None for the connection's default
        :param name: the table's name
        """
        return None

    def key_problem(self, table: Table, key: Sequence[str]) -> tuple[str, str] | None:
        """Return the reason why rows cannot be upserted into a table by a key, and the remedy; None if they can.

        Both are parts of an error message, such as ``MySQL has no upsert in this version`` and ``Use mode: append, or
        install a dialect that has it.``

        :param table: the target
        :param key: columns of a unique key of the table that cannot be NULL
        """
        del table, key
        return f"{self.label} has no upsert in this version", "Use mode: append, or install a dialect that has it."

    def replacement_problem(self, connection: sa.Connection, table: Table) -> tuple[str, str] | None:  # noqa: ARG002
        """Return the reason why a refresh cannot replace all rows of a table, and the remedy; None if it can.

        A dialect that returns None here has to implement :meth:`create_staging`, and :meth:`begin_replacement` unless
        the isolation level suffices.

        :param connection: an open connection
        :param table: the target
        """
        return (
            f"{self.label} has no mode: replace in this version",
            "Use mode: append, or install a dialect that has it.",
        )

    def create_staging(self, connection: sa.Connection, target: Table, name: str) -> None:
        """Create an empty table beside a target, with its columns, checks and unique keys, but without foreign keys.

        :param connection: an open connection
        :param target: the target
        :param name: name of the new table
        :raises NotImplementedError: in this base class
        """
        raise NotImplementedError(self.label)

    def begin_replacement(self, connection: sa.Connection) -> None:
        """Prepare the transaction that deletes all rows of a target and inserts others.

        From the deletion until the commit, no other session may add rows to the target. The base class relies on the
        isolation level.

        :param connection: a connection outside of any transaction
        """

    def server_problems(self, connection: sa.Connection) -> tuple[Sequence[tuple[str, str]], Sequence[str]]:  # noqa: ARG002
        """Return reasons why the server is unsuitable for a target, each with its remedy, and warnings about settings.

        Both are empty for a suitable server.

        :param connection: an open connection
        """
        return (), ()

    def server_identity(self, connection: sa.Connection) -> str:
        """Return a text that identifies the database; it changes if another database takes over the same address.

        :param connection: an open connection
        """
        return str(connection.engine.url.host or "")

    def server_time(self, connection: sa.Connection) -> datetime:  # noqa: ARG002
        """Return the server's present time with a zone; the base class returns this machine's time.

        :param connection: an open connection
        """
        return datetime.now(UTC)

    def table_options(self) -> Mapping[str, Any]:
        """Return the options of SQLAlchemy's ``Table`` with which the bookkeeping tables are created."""
        return {}

    def fence_lock(self, select: sa.Select[Any]) -> sa.Select[Any]:
        """Return a query of the fence's row that locks the row until the transaction ends.

        Several writers should be able to hold the lock at once (share mode); without such a lock, they wait for each
        other.

        :param select: the query without a lock
        """
        return select.with_for_update(read=True)

    def limit_lock_wait(self, connection: sa.Connection, seconds: int) -> None:
        """Limit the time for which a session waits for locks, if the database allows that.

        :param connection: the session
        :param seconds: longest wait
        """

    def limit_ddl_wait(self, connection: sa.Connection) -> None:
        """Limit the time for which a session waits to drop or change a table that others use, if the database waits.

        :param connection: the session
        """

    def lock_holders(self, connection: sa.Connection, schema: str, name: str, mark: str) -> Sequence[str]:  # noqa: ARG002
        """Return the sessions that may keep a table from being dropped, for a message; empty if they are not known.

        :param connection: the session whose statement has waited in vain
        :param schema: the table's schema
        :param name: the table's name
        :param mark: text that :meth:`mark_session` was given for the run's own sessions, which are left out
        """
        return ()

    def mark_session(self, connection: sa.Connection, mark: str) -> None:
        """Mark a writing session, so that :meth:`end_sessions` finds it.

        :param connection: the session
        :param mark: text of pipeline and epoch, at most 48 characters
        """

    def end_sessions(self, connection: sa.Connection, mark: str) -> None:
        """End the sessions with a mark, because one of them keeps the fence locked; do nothing if the database cannot.

        :param connection: session that ends the others
        :param mark: text that :meth:`mark_session` was given
        """

    def write(self, connection: sa.Connection, target: Table, rows: pa.Table, key: Sequence[str]) -> int:
        """Write rows in the open transaction, and return the number of rows that the server reports as taken.

        :param connection: the connection
        :param target: the target
        :param rows: columns that :mod:`~.outgoing_values` has converted, with the target's names
        :param key: key columns of an upsert; empty to insert
        """
        table = table_clause(target, rows.schema.names)
        return int(connection.execute(self.insert(table, key), rows.to_pylist()).rowcount)

    def find_long_row(self, connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> tuple[int, str] | None:
        """Return the index of a row that is too long for one statement, and a clause that says so; None if all fit.

        It is for databases that end the connection because of such a row; the base class returns None.

        :param connection: an open connection
        :param rows: the rows, as sequences of values
        """
        del connection, rows
        return None

    def insert(self, table: Any, key: Sequence[str]) -> Any:
        """Return the statement that writes one row.

        :param table: the target as SQLAlchemy's ``TableClause``
        :param key: key columns of an upsert; empty to insert
        """
        assert not key
        return table.insert()

    def running_transactions(self, connection: sa.Connection) -> frozenset[str] | None:  # noqa: ARG002
        """Return names of the transactions that run now and may commit rows; None if they cannot be seen.

        :param connection: a connection outside of any transaction
        """
        return None

    def transactions_elsewhere(self, connection: sa.Connection) -> str | None:  # noqa: ARG002
        """Return a clause that says why transactions of other servers write to this server's tables; None if none do.

        :meth:`running_transactions` does not contain them.

        :param connection: an open connection
        """
        return None

    def next_number(self, connection: sa.Connection, table: Table, column: Column) -> int | None:  # noqa: ARG002
        """Return the number that the next row gets in a column that the database numbers; None if unknown.

        :param connection: an open connection
        :param table: the table
        :param column: the column
        """
        return None

    def reused_numbers(self, connection: sa.Connection, table: Table, column: Column) -> str | None:  # noqa: ARG002
        """Return a warning if the database may give a removed row's number to a later row; None if it does not.

        :param connection: an open connection
        :param table: the table
        :param column: the cursor column
        """
        return None

    def stored_size(self, connection: sa.Connection, table: Table) -> tuple[int, int] | None:  # noqa: ARG002
        """Return the size of a table in bytes and its number of rows, as the database estimates them.

        None if they are not known.

        :param connection: an open connection
        :param table: the table
        """
        return None

    def closes_at_once(self) -> bool:
        """Return whether no row can appear below the greatest visible cursor value, as with a single writer."""
        return False

    def bad_cursor(self, column: Column, cursor: sa.ColumnElement[Any]) -> sa.ColumnElement[bool] | None:
        """Return the SQL condition for rows whose cursor has no position; None if there cannot be any.

        :param column: the cursor column
        :param cursor: the column in SQLAlchemy's statements
        """
        return cursor.is_(None) if column.nullable else None

    def can_order(self, column: Column) -> bool:
        """Return whether a column can be a cursor: a comparison in SQL orders its values as their positions.

        :param column: a column whose kind a cursor may have
        """
        return column.kind is Kind.INTEGER

    def cursor_value(self, column: Column, position: int) -> Any:
        """Return the least cursor value at or after a position, as the driver binds it; None if there is no such value.

        :param column: the cursor column
        :param position: the position
        """
        if column.kind is Kind.INTEGER:
            return min(max(position, column.low), column.high + 1)
        return to_date(position) if column.kind is Kind.DATE else to_datetime(position)

    def read_value(self, column: Column, value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:  # noqa: ARG002
        """Return the SQL expression by which a column is read without loss.

        :param column: the column
        :param value: the column in SQLAlchemy's statements
        """
        return value

    def fetch(self, connection: sa.Connection, query: sa.Select[Any], columns: Sequence[Column]) -> list[pa.Array]:
        """Return the result of a query as Arrow arrays of the types that :attr:`.Column.spark` names.

        :param connection: an open connection
        :param query: the query
        :param columns: the columns that it selects, by :meth:`read_value`
        :raises ValueMismatchError: if a value is not of its column's type
        """
        rows = connection.execute(query).fetchall()
        values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        return [from_python(column, items) for column, items in zip(columns, values, strict=True)]
