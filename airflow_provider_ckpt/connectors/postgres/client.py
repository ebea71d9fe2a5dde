"""Shared by the PostgreSQL source and sink: quoting, connection strings, connections, and errors by SQLSTATE."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sqlstates import is_server_failure, is_transient
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, ErrorInfo, ErrorType, SinkError, SourceError

if TYPE_CHECKING:
    from psycopg2 import extensions

_LIBPQ_KEYS = frozenset(
    {
        "channel_binding", "connect_timeout", "gssencmode", "hostaddr", "keepalives", "keepalives_count",
        "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "passfile", "service", "sslcert", "sslcrl",
        "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
    }
)  # fmt: skip
"""Keys of an Airflow connection's extra that are passed to libpq; others there are for other programs."""

_SESSION_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "jit": "off",
}
"""Settings that make the text of a value the same wherever it is read and written, whatever the server's defaults."""

_REFUSED_LOGIN = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|does not exist|permission denied|not permitted"
    r"|certificate|invalid .*connection option"
)
_DRIVER_NOISE = re.compile(r"^[A-Z_]+: |\[libpq\] |(?:PGRES_FATAL_ERROR )|\. SQLSTATE: \w{5}$")
_QUOTED_VALUE = re.compile(r'"(?:.*"|.*)|0x[0-9a-f]{2}(?: 0x[0-9a-f]{2})*', re.DOTALL)
"""A quoted value, which may contain quotes or be truncated, and the bytes of one in hexadecimal."""
_SERVER_MESSAGE = re.compile(r"(?:ERROR|FATAL|PANIC):  (.+)", re.DOTALL)


def quote(name: str) -> str:
    """Return an SQL identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str | int | datetime | None) -> str:
    """Return an SQL constant, quoted as by libpq, for statements that cannot bind values."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    text = value.isoformat() if isinstance(value, datetime) else value
    escaped = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{escaped}'"


def split_table(name: str) -> tuple[str | None, str]:
    """Return schema and table of ``schema.table``; None as schema if it is left out. Parts may be in double quotes.

    :raises ConfigError: if it is neither ``table`` nor ``schema.table``
    """
    parts = re.findall(r'"((?:[^"]|"")+)"|([^".]+)', name)
    names = [quoted.replace('""', '"') if quoted else unquoted for quoted, unquoted in parts]
    rebuilt = ".".join(quote(part) if quoted else part for part, (quoted, _) in zip(names, parts, strict=True))
    if rebuilt != name or len(names) not in (1, 2):
        raise ConfigError(
            f"{name!r} is not the name of a table.", hint='Write schema.table; put a part that holds a dot in "quotes".'
        )
    return (names[0], names[1]) if len(names) == 2 else (None, names[0])


def conninfo(connection: Connection, application: str, settings: dict[str, str] | None = None) -> str:
    """Return a libpq connection string. It contains the password.

    :param connection: the Airflow connection
    :param application: application_name, truncated to the server's 63 bytes
    :param settings: further session settings
    """
    extra = {key: str(value) for key, value in connection.extra.items() if key in _LIBPQ_KEYS}
    session = {**_SESSION_SETTINGS, **(settings or {})}
    options = [extra.pop("options", ""), *(f"-c {name}={value}" for name, value in session.items())]
    parts = {
        "connect_timeout": "10",
        "keepalives_idle": "30",
        **extra,
        "host": connection.host,
        "port": connection.port,
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.schema,
        "client_encoding": "UTF8",
        "application_name": application[:63],
        "options": " ".join(filter(None, options)),
    }
    return " ".join(f"{key}={_conninfo_value(str(value))}" for key, value in parts.items() if value not in (None, ""))


def _conninfo_value(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def address(connection: Connection) -> str:
    """Return host, port and database for messages, without user and password."""
    return f"{connection.host or 'local socket'}:{connection.port or 5432}/{connection.schema or ''}"


def require_connection(connection: Connection | None, what: str) -> Connection:
    """Return the connection, checked.

    :param what: the connection's role, such as ``source``, for messages
    :raises ConfigError: if there is no connection or it is of another type
    """
    if connection is None:
        raise ConfigError(
            f"the postgres {what} has no connection.", hint=f"Name an Airflow connection in {what}.connection."
        )
    if connection.type not in ("postgres", "postgresql"):
        raise ConfigError(
            f"connection {connection.id!r} of the postgres {what} has type {connection.type!r}, not postgres.",
            hint="Name a connection of type postgres.",
        )
    return connection


def open_psycopg(
    connection: Connection, application: str, kind: ErrorType, settings: dict[str, str] | None = None
) -> extensions.connection:
    """Open a psycopg2 connection in autocommit mode, for the planning and control sides.

    :param connection: the Airflow connection
    :param application: application_name of the session
    :param kind: error type of a failure: ``Source`` or ``Sink``
    :param settings: further session settings
    :raises CkptError: if it cannot be opened
    """
    import psycopg2

    try:
        opened = psycopg2.connect(conninfo(connection, application, settings))
    except psycopg2.Error as error:
        raise to_exception(connect_error(error, connection, kind)) from error
    opened.autocommit = True
    return opened


def open_adbc(connection: Connection, application: str, kind: ErrorType, settings: dict[str, str] | None = None) -> Any:
    """Open an ADBC connection in autocommit mode, for a lane; transactions are begun by statements.

    :param connection: the Airflow connection
    :param application: application_name of the session
    :param kind: error type of a failure: ``Source`` or ``Sink``
    :param settings: further session settings
    :raises CkptError: if it cannot be opened
    """
    from adbc_driver_manager import AdbcConnection, Error
    from adbc_driver_postgresql import dbapi

    try:
        with _DATABASE_LOCK:
            database = _database(conninfo(connection, "ckpt"))
        opened = dbapi.Connection(_SharedDatabase(), AdbcConnection(database), autocommit=True)
    except Error as error:
        raise to_exception(connect_error(error, connection, kind)) from error
    try:
        with opened.cursor() as cursor:
            for name, value in {"application_name": application[:63], **(settings or {})}.items():
                cursor.execute("SELECT set_config($1, $2, false)", [name, value]).fetchall()
    except Error as error:
        opened.close()
        raise to_exception(connect_error(error, connection, kind)) from error
    return opened


_DATABASE_LOCK = Lock()
"""Held while a database is opened, so that a lane's reader and writer share one instead of each opening its own."""


@cache
def _database(conninfo: str) -> Any:
    """Return the driver's database object, cached for the life of the process.

    To open one, the driver reads every type of the catalog, which takes ten times as long as opening a connection.
    Types that are created later need no new one: their columns are read as text and written in their own binary form.
    """
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(conninfo)


class _SharedDatabase:
    """Replacement of the database object in a connection, so that closing the connection leaves the database open."""

    def close(self) -> None:
        """Do nothing."""


def connect_error(error: Exception, connection: Connection, kind: ErrorType) -> ErrorInfo:
    """Return the error of a failed connection: permanent if refused (password, database, rights), else transient."""
    text = server_message(error)
    message = f"cannot connect to PostgreSQL at {address(connection)} (connection {connection.id!r}): {text}"
    if _REFUSED_LOGIN.search(text):
        return ErrorInfo(kind, message, False, sqlstate_of(error))
    return ErrorInfo(kind, message, True, sqlstate_of(error) or "08006", is_outage=True)


def sqlstate_of(error: Exception) -> str | None:
    """Return the SQLSTATE of a psycopg2 or ADBC error; None if it has none."""
    return getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)


def server_message(error: Exception) -> str:
    """Return the first line of the server's message, without the text that the driver adds.

    Later lines may show the record (``Failing row contains …``), which only a dead letter may do.
    """
    text = str(error).strip()
    while (cleaned := _DRIVER_NOISE.sub("", text).strip()) != text:
        text = cleaned
    found = _SERVER_MESSAGE.search(text)
    return next(iter((found[1] if found else text).splitlines()), type(error).__name__).strip()


def without_values(message: str, state: str | None) -> str:
    """Return the server's message without the values that it quotes: logs and events must not show records.

    Data errors (class 22) quote values; errors of other classes quote the names of tables, columns and constraints.
    """
    if state is None or not state.startswith("22"):
        return message
    return _QUOTED_VALUE.sub("…", message)


def error_info(error: Exception, kind: ErrorType, operation: str = "", *, lost: bool = False) -> ErrorInfo:
    """Return an error of psycopg2 or ADBC as error information (semantics, section 7).

    :param error: the driver's exception
    :param kind: error type: ``Source`` or ``Sink``
    :param operation: the interrupted operation, for the message
    :param lost: whether the connection was lost, so that the result of its last statement is unknown
    """
    state = sqlstate_of(error)
    message = without_values(server_message(error), state)
    text = f"{operation}: {message}" if operation else message
    if lost or (state is None and _is_lost(error)):
        return ErrorInfo(kind, f"{text} (the connection was lost)", True, state or "08006", is_outage=True)
    if state is None:
        return ErrorInfo(kind, text)
    return ErrorInfo(kind, text, is_transient(state), state, is_server_failure(state))


def _is_lost(error: Exception) -> bool:
    return bool(
        re.search(r"server closed the connection|connection (?:already|is) closed|no connection to|SYSCALL", str(error))
    )


def to_exception(info: ErrorInfo, hint: str | None = None) -> CkptError:
    """Return the exception for the error information of a source or sink."""
    kind = SourceError if info.type is ErrorType.SOURCE else SinkError
    return kind(info.message, sqlstate=info.sqlstate, recoverable=info.recoverable, is_outage=info.is_outage, hint=hint)
