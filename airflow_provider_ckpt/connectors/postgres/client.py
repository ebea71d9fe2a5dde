"""Connect to PostgreSQL, quote SQL and convert driver errors; shared by source and sink."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.connectors import kept_sessions
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.transient_sqlstates import is_server_failure, is_transient
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
"""Keys of an Airflow connection's extra that are passed to libpq; all other keys are ignored."""

_SESSION_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "jit": "off",
}
"""Session settings that make the text form of values independent of the server's defaults."""

INSUFFICIENT_PRIVILEGE = "42501"
"""SQLSTATE of a statement for which the user lacks a right."""

READ_APPLICATION = "ckpt-read:"
"""Beginning of the application_name of a lane's session that reads a source; it is read-only."""

SNAPSHOT_APPLICATION = "ckpt-snapshot:"
"""Beginning of the application_name of the session that holds the snapshot of a full refresh; it is read-only."""

_REFUSED_LOGIN = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|does not exist|permission denied|not permitted"
    r"|certificate|invalid .*connection option"
)
_DRIVER_NOISE = re.compile(r"^[A-Z_]+: |\[libpq\] |(?:PGRES_FATAL_ERROR )|\. SQLSTATE: \w{5}$")
_QUOTED_VALUE = re.compile(r'"(?:.*"|.*)|0x[0-9a-f]{2}(?: 0x[0-9a-f]{2})*', re.DOTALL)
"""Pattern of a value in a message: in double quotes, or bytes in hexadecimal.

A quoted value may itself contain quotes, and may be truncated, so that the closing quote is missing.
"""
_SERVER_MESSAGE = re.compile(r"(?:ERROR|FATAL|PANIC):  (.+)", re.DOTALL)


def quote(name: str) -> str:
    """Return an SQL identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str | int | datetime | None) -> str:
    """Return an SQL constant for a value, quoted as libpq does, for statements that cannot bind values.

    :param value: the value; None becomes ``NULL``, and a time becomes ISO 8601 text
    """
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    text = value.isoformat() if isinstance(value, datetime) else value
    escaped = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{escaped}'"


def split_table(name: str) -> tuple[str | None, str]:
    """Return schema and table of ``schema.table``; the schema is None if it is left out.

    Each part may be in double quotes.

    :raises ConfigError: if the name is neither ``table`` nor ``schema.table``
    """
    parts = re.findall(r'"((?:[^"]|"")+)"|([^".]+)', name)
    names = [quoted.replace('""', '"') if quoted else unquoted for quoted, unquoted in parts]
    rebuilt = ".".join(quote(part) if quoted else part for part, (quoted, _) in zip(names, parts, strict=True))
    if rebuilt != name or len(names) not in (1, 2):
        raise ConfigError(
            f"{name!r} is not the name of a table.",
            hint='Write schema.table; put a part that contains a dot in "quotes".',
        )
    return (names[0], names[1]) if len(names) == 2 else (None, names[0])


def conninfo(connection: Connection, application: str, settings: dict[str, str] | None = None) -> str:
    """Return a libpq connection string. It contains the password.

    :param connection: the Airflow connection
    :param application: application_name of the session, truncated to the server's 63 bytes
    :param settings: session settings by name, which are added to :data:`_SESSION_SETTINGS`; None for no others
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
    """Return host, port and database of a connection for messages, without user and password."""
    return f"{connection.host or 'local socket'}:{connection.port or 5432}/{connection.schema or ''}"


def require_connection(connection: Connection | None, what: str) -> Connection:
    """Return the connection, after checking that it is a PostgreSQL connection.

    :param connection: the Airflow connection; None if the pipeline names none
    :param what: key of the pipeline's declaration that names the connection, such as ``source``, for messages
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
    """Open a psycopg2 connection in autocommit mode, for planning a source or controlling a sink.

    :param connection: the Airflow connection
    :param application: application_name of the session
    :param kind: type of the error that is raised: ``Source`` or ``Sink``
    :param settings: further session settings by name
    :raises CkptError: if the connection cannot be opened
    """
    import psycopg2

    try:
        opened = psycopg2.connect(conninfo(connection, application, settings))
    except psycopg2.Error as error:
        raise to_exception(connect_error(error, connection, kind)) from error
    opened.autocommit = True
    return opened


def take_or_open_psycopg(
    connection: Connection, application: str, kind: ErrorType, settings: dict[str, str] | None = None
) -> extensions.connection:
    """Take a session that another run of this process has given back, or open one; see :func:`open_psycopg`.

    The session is as good as new: as behind a connection pooler, ``DISCARD ALL`` has reset all that its last user set.

    :param connection: the Airflow connection
    :param application: application_name of the session
    :param kind: type of the error that is raised: ``Source`` or ``Sink``
    :param settings: further session settings by name
    :raises CkptError: if a connection cannot be opened
    """
    import psycopg2

    while (session := kept_sessions.take(conninfo(connection, "", settings))) is not None:
        kept = cast("extensions.connection", session)
        try:
            with kept.cursor() as cursor:
                cursor.execute("DISCARD ALL")
                cursor.execute("SELECT pg_catalog.set_config('application_name', %s, false)", [application[:63]])
            return kept
        except psycopg2.Error:  # the server has ended it
            kept.close()
    return open_psycopg(connection, application, kind, settings)


def give_back_psycopg(
    session: extensions.connection, connection: Connection, settings: dict[str, str] | None = None
) -> None:
    """Give a session of :func:`take_or_open_psycopg` back, for other runs of this process; close it if there are none.

    :param session: the session
    :param connection: the Airflow connection
    :param settings: the further session settings with which it was opened
    """
    from psycopg2.extensions import TRANSACTION_STATUS_IDLE

    if session.closed or session.info.transaction_status != TRANSACTION_STATUS_IDLE:
        session.close()
    else:
        kept_sessions.give_back(conninfo(connection, "", settings), session)


def open_adbc(connection: Connection, application: str, kind: ErrorType, settings: dict[str, str] | None = None) -> Any:
    """Open an ADBC connection in autocommit mode, for a lane; transactions are begun by the statement ``BEGIN``.

    :param connection: the Airflow connection
    :param application: application_name of the session
    :param kind: type of the error that is raised: ``Source`` or ``Sink``
    :param settings: further session settings by name
    :raises CkptError: if the connection cannot be opened
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
"""Lock held while a database object is created, so that a lane's reader and writer share one."""


@cache
def _database(conninfo: str) -> Any:
    """Return the driver's database object, cached for the life of the process.

    On creation, the driver reads all types of the catalog, which takes ten times as long as opening a connection. The
    object is not recreated for types that are added later: columns of these types are read as text and written in their
    own binary form.
    """
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(conninfo)


class _SharedDatabase:
    """Stand-in for the database object of an ADBC connection.

    A closed connection closes this stand-in, so that the database object stays open for other connections.
    """

    def close(self) -> None:
        """Leave the driver's database object open for the other connections of this process."""


def connect_error(error: Exception, connection: Connection, kind: ErrorType) -> ErrorInfo:
    """Return the error information of a failed attempt to connect.

    The error is permanent if the server refused the login (password, database, rights), else a recoverable outage.

    :param error: the driver's exception
    :param connection: the Airflow connection, for the message
    :param kind: error type: ``Source`` or ``Sink``
    """
    text = server_message(error)
    message = f"cannot connect to PostgreSQL at {address(connection)} (connection {connection.id!r}): {text}"
    if _REFUSED_LOGIN.search(text):
        return ErrorInfo(kind, message, False, sqlstate_of(error))
    return ErrorInfo(kind, message, True, sqlstate_of(error) or "08006", is_outage=True)


def sqlstate_of(error: Exception) -> str | None:
    """Return the SQLSTATE of a psycopg2 or ADBC error; None if it has none."""
    return getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)


def server_message(error: Exception) -> str:
    """Return the first line of the server's message in a driver's exception, without the text that the driver adds.

    Later lines are left out, because they may show the record (``Failing row contains …``), which only a dead letter
    may do.
    """
    text = str(error).strip()
    while (cleaned := _DRIVER_NOISE.sub("", text).strip()) != text:
        text = cleaned
    found = _SERVER_MESSAGE.search(text)
    return next(iter((found[1] if found else text).splitlines()), type(error).__name__).strip()


def without_values(message: str, state: str | None) -> str:
    """Return a server's message without the values that it quotes, since logs and events must not show records.

    Only messages of data errors (SQLSTATE class 22) quote values; the names of tables, columns and constraints stay.

    :param message: the message
    :param state: SQLSTATE of the error, if known
    """
    if state is None or not state.startswith("22"):
        return message
    return _QUOTED_VALUE.sub("…", message)


def error_info(error: Exception, kind: ErrorType, operation: str = "", *, lost: bool = False) -> ErrorInfo:
    """Return the error information for an exception of psycopg2 or ADBC (semantics, section 7).

    The error is recoverable if the connection was lost, or if the SQLSTATE stands for a transient error.

    :param error: the driver's exception
    :param kind: error type, such as ``Source`` or ``Sink``
    :param operation: description of the interrupted operation, with which the message begins, such as ``exporting a
        snapshot of orders``; empty for none
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
    """Return the exception that carries the error information of a source or sink.

    :param info: the error information; its type decides between ``SourceError`` and ``SinkError``
    :param hint: advice to the user, if any
    """
    kind = SourceError if info.type is ErrorType.SOURCE else SinkError
    return kind(info.message, sqlstate=info.sqlstate, recoverable=info.recoverable, is_outage=info.is_outage, hint=hint)
