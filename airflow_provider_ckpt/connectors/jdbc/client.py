"""Query a database through its JDBC driver in a separate Java process, and convert the driver's errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc import url_check
from airflow_provider_ckpt.connectors.jdbc.column_types import MICROSECONDS_A_DAY, CursorKind, DriverColumn
from airflow_provider_ckpt.connectors.jdbc.dialect import Dialect
from airflow_provider_ckpt.connectors.jdbc.failures import error_info, sql_error
from airflow_provider_ckpt.connectors.jdbc.jvm import Jvm
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType, SourceError

_SECONDS = 10
_NO_NULLS = 0


class ResultKind(Enum):
    """Type of a query's result column that is not the cursor column: a number of rows, or text."""

    COUNT = "count"
    TEXT = "text"


def require_connection(connection: Connection | None) -> Connection:
    """Return the source's connection, after checking that it is usable.

    :param connection: the Airflow connection of the source; None if the pipeline names none
    :raises ConfigError: if there is no connection, its type is neither ``jdbc`` nor ``generic``, it has no JDBC URL,
        the URL includes a secret, or a parameter could make the driver load code
    """
    if connection is None:
        raise ConfigError("the jdbc source has no connection.", hint="Name an Airflow connection in source.connection.")
    if connection.type not in ("jdbc", "generic"):
        raise ConfigError(
            f"connection {connection.id!r} of the jdbc source has type {connection.type!r}, not jdbc.",
            hint="Name a connection of type jdbc.",
        )
    if not (connection.host or "").startswith("jdbc:"):
        raise ConfigError(
            f"connection {connection.id!r} has no JDBC URL.",
            hint="Its host is the whole URL, such as jdbc:postgresql://db.example:5432/shop.",
        )
    url_check.check(connection)
    return connection


def driver_properties(connection: Connection) -> dict[str, str]:
    """Return the properties to pass to the driver in addition to the URL, by name; they include the password.

    :param connection: the Airflow connection: its login, its password, and ``properties`` of its extra
    """
    extra = connection.extra.get("properties") or {}
    named = {"user": connection.login, "password": connection.password}
    return {name: str(value) for name, value in {**extra, **named}.items() if value is not None}


class Database:
    """A connection to the source's database through its JDBC driver.

    The connection is opened on first use, and again after it was lost. Methods raise :class:`SourceError` for errors of
    the driver, the database and the Java process.

    :param connection: the Airflow connection
    :param jars: paths of the driver's jars
    :param operation: description of the work that needs the connection, with which error messages begin, such as
        ``planning from shop.orders``
    """

    def __init__(self, connection: Connection, jars: Sequence[str], operation: str) -> None:
        self._connection = connection
        self._jars = jars
        self._operation = operation
        self._jvm: Jvm | None = None
        self._java_connection: Any = None
        self._dialect: Dialect | None = None

    @property
    def dialect(self) -> Dialect:
        """SQL dialect of the database."""
        if self._dialect is None:
            with self._connected() as opened:
                metadata = opened.getMetaData()
                self._dialect = Dialect(metadata.getDatabaseProductName(), metadata.getIdentifierQuoteString())
        return self._dialect

    @cached_property
    def catalog(self) -> str:
        """Name of the database (the JDBC catalog); empty if the driver does not report it."""
        with self._connected() as opened:
            return str(opened.getCatalog() or "")

    @cached_property
    def driver(self) -> str:
        """Name of the Java class of the JDBC driver that accepts the connection's URL."""
        with self._connected():
            assert self._jvm is not None
            return str(self._jvm.java.sql.DriverManager.getDriver(self._connection.host).getClass().getName())

    def rows(
        self, statement: str, kinds: Sequence[CursorKind | ResultKind], most: int | None = None
    ) -> list[list[Any]]:
        """Execute a query and return its rows.

        :param statement: the query
        :param kinds: type of each result column; a value of a :class:`CursorKind` is returned as its position, a 64-bit
            integer
        :param most: maximum number of rows to return; None for all
        """
        with self._connected() as opened:
            prepared = opened.createStatement()
            try:
                if most is not None:
                    prepared.setMaxRows(most)
                found = prepared.executeQuery(statement)
                rows = []
                while found.next():
                    rows.append([self._get(found, at, get) for at, get in enumerate(kinds, 1)])
                return rows
            finally:
                prepared.close()

    def columns(self, query: str) -> list[DriverColumn]:
        """Return the result columns of a query, as the driver describes them.

        :param query: the query, which is executed; a condition that is always false avoids reading rows
        """
        with self._connected() as opened:
            statement = opened.createStatement()
            try:
                metadata = statement.executeQuery(query).getMetaData()
                return [
                    DriverColumn(
                        metadata.getColumnLabel(at),
                        metadata.getColumnType(at),
                        metadata.getColumnTypeName(at),
                        metadata.getPrecision(at),
                        metadata.getScale(at),
                        metadata.isSigned(at),
                        metadata.isNullable(at) != _NO_NULLS,
                    )
                    for at in range(1, metadata.getColumnCount() + 1)
                ]
            finally:
                statement.close()

    def close(self) -> None:
        """Close the connection and end the Java process."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        jvm, opened, self._jvm, self._java_connection = self._jvm, self._java_connection, None, None
        with suppress(Py4JError, OSError):  # a lost connection need not be closed
            if opened is not None:
                opened.close()
        if jvm is not None:
            jvm.close()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Yield the open connection, and convert errors of the driver and the Java process to :class:`SourceError`.

        After an outage the connection is closed, so that the next use opens a new one.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        name = self._connection.id
        try:
            if self._java_connection is None:
                self._java_connection = self._connect()
            yield self._java_connection
        except Py4JJavaError as error:
            found = sql_error(error)
            if found is None:
                text = url_check.without_secrets(self._connection, str(error.java_exception))
                raise SourceError(f"{self._operation} (connection {name!r}): {text}") from None
            info = error_info(found, f"{self._operation} (connection {name!r})", self._connection)
            if info.is_outage:
                self.close()
            raise to_exception(info) from None  # Py4J's own text may include what was sent
        except (Py4JError, OSError) as error:
            self.close()
            raise to_exception(
                ErrorInfo(
                    ErrorType.SOURCE, f"{self._operation}: the Java process was lost ({error})", True, is_outage=True
                )
            ) from None

    def _connect(self) -> Any:
        missing = [jar for jar in self._jars if not Path(jar).is_file()]
        if missing:
            raise ConfigError(
                f"there is no file {', '.join(missing)}.", hint="source.jars names the driver's jars, on the worker."
            )
        self._jvm = self._jvm or Jvm(self._jars)
        java = self._jvm.java
        properties = java.util.Properties()
        for key, value in driver_properties(self._connection).items():
            properties.setProperty(key, value)
        java.sql.DriverManager.setLoginTimeout(_SECONDS)
        known = [driver.getClass().getName() for driver in java.sql.DriverManager.drivers().toList()]
        url = self._connection.host
        if not any(driver.acceptsURL(url) for driver in java.sql.DriverManager.drivers().toList()):
            raise ConfigError(
                f"no driver accepts the JDBC URL of connection {self._connection.id!r}.",
                hint=f"source.jars must name the driver's jar; loaded: {', '.join(known) or 'no driver'}.",
            )
        return java.sql.DriverManager.getConnection(url, properties)

    def _get(self, found: Any, at: int, kind: CursorKind | ResultKind) -> Any:
        if kind is ResultKind.TEXT:
            return found.getString(at)
        if kind in (ResultKind.COUNT, CursorKind.NUMBER):
            value = found.getLong(at)
            return None if found.wasNull() else int(value)
        from py4j.java_gateway import get_java_class  # type: ignore[import-untyped]

        assert self._jvm is not None
        time = self._jvm.java.time
        if kind is CursorKind.DATE:
            day = found.getObject(at, get_java_class(time.LocalDate))
            return None if day is None else _checked_position(day.toEpochDay() * MICROSECONDS_A_DAY)
        if kind is CursorKind.TIMESTAMP:
            moment = found.getObject(at, get_java_class(time.LocalDateTime))
            return (
                None
                if moment is None
                else _checked_position(_microseconds(moment.toEpochSecond(time.ZoneOffset.UTC), moment))
            )
        moment = found.getObject(at, get_java_class(time.OffsetDateTime))
        return None if moment is None else _checked_position(_microseconds(moment.toEpochSecond(), moment))


def to_exception(info: ErrorInfo) -> SourceError:
    """Return an exception with the message, SQLSTATE and classification of an error.

    The classification says whether a retry can succeed, and whether the whole source failed.
    """
    return SourceError(info.message, sqlstate=info.sqlstate, recoverable=info.recoverable, is_outage=info.is_outage)


def _microseconds(seconds: int, moment: Any) -> int:
    return seconds * 1_000_000 + int(moment.getNano()) // 1000


def _checked_position(value: int) -> int:
    if not -62_135_596_800_000_000 <= value < 253_402_300_800_000_000:
        raise SourceError(
            "a cursor is infinity, or a time outside the years 1 to 9999, which has no position.",
            hint="Set a time within these years in those rows, or read a view without them.",
        )
    return value
