"""What the PostgreSQL source and sink share: quoting, connection strings, connections, and errors by SQLSTATE."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.connectors.sqlstates import is_of_all, passes
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, ErrorInfo, ErrorType, SinkError, SourceError

if TYPE_CHECKING:
    from psycopg2 import extensions

_LIBPQ = frozenset(
    {
        "channel_binding", "connect_timeout", "gssencmode", "hostaddr", "keepalives", "keepalives_count",
        "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "passfile", "service", "sslcert", "sslcrl",
        "sslkey", "sslmode", "sslpassword", "sslrootcert", "target_session_attrs", "tcp_user_timeout",
    }
)  # fmt: skip
"""Keys of an Airflow connection's extra that libpq takes; others there are for other programs."""

_SESSION = {
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
_QUOTED = re.compile(r'"(?:.*"|.*)|0x[0-9a-f]{2}(?: 0x[0-9a-f]{2})*', re.DOTALL)
"""A value in quotes, which may hold quotes itself or be cut off, and bytes of one."""
_SERVER_SAID = re.compile(r"(?:ERROR|FATAL|PANIC):  (.+)", re.DOTALL)


def quote(name: str) -> str:
    """An SQL identifier, quoted."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str | int | datetime | None) -> str:
    """An SQL constant, quoted as libpq would; for the few places that take no bound value."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    text = value.isoformat() if isinstance(value, datetime) else value
    escaped = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{escaped}'"


def split_table(name: str) -> tuple[str | None, str]:
    """Schema (None: the search path decides) and table of ``schema.table``; a part may be in double quotes.

    :raises ConfigError: if it is neither ``table`` nor ``schema.table``
    """
    parts = re.findall(r'"((?:[^"]|"")+)"|([^".]+)', name)
    names = [quoted.replace('""', '"') if quoted else plain for quoted, plain in parts]
    rebuilt = ".".join(quote(part) if quoted else part for part, (quoted, _) in zip(names, parts, strict=True))
    if rebuilt != name or len(names) not in (1, 2):
        raise ConfigError(
            f"{name!r} is not the name of a table.", hint='Write schema.table; put a part that holds a dot in "quotes".'
        )
    return (names[0], names[1]) if len(names) == 2 else (None, names[0])


def conninfo(connection: Connection, application: str, settings: dict[str, str] | None = None) -> str:
    """A libpq connection string; it holds the password.

    :param application: application_name, cut at the server's 63 bytes
    :param settings: further session settings
    """
    extra = {key: str(value) for key, value in connection.extra.items() if key in _LIBPQ}
    session = {**_SESSION, **(settings or {})}
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


def where_is(connection: Connection) -> str:
    """The database for a person: no user, no password."""
    return f"{connection.host or 'local socket'}:{connection.port or 5432}/{connection.schema or ''}"


def require(connection: Connection | None, what: str) -> Connection:
    """The connection, or a clear error.

    :raises ConfigError: if there is none or it is of another type
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
    """A psycopg2 connection in autocommit mode, for the controlling half.

    :param kind: ``Source`` or ``Sink``: whose error it is when that fails
    :param settings: further session settings
    """
    import psycopg2

    try:
        opened = psycopg2.connect(conninfo(connection, application, settings))
    except psycopg2.Error as error:
        raise raised(connect_error(error, connection, kind)) from error
    opened.autocommit = True
    return opened


def open_adbc(connection: Connection, application: str, kind: ErrorType, settings: dict[str, str] | None = None) -> Any:
    """An ADBC connection in autocommit mode, for a lane; transactions are begun by statements.

    :param kind: ``Source`` or ``Sink``: whose error it is when that fails
    :param settings: further session settings
    """
    from adbc_driver_manager import AdbcConnection, Error
    from adbc_driver_postgresql import dbapi

    try:
        with _OPENING:
            database = _database(conninfo(connection, "ckpt"))
        opened = dbapi.Connection(_Kept(), AdbcConnection(database), autocommit=True)
    except Error as error:
        raise raised(connect_error(error, connection, kind)) from error
    try:
        with opened.cursor() as cursor:
            for name, value in {"application_name": application[:63], **(settings or {})}.items():
                cursor.execute("SELECT set_config($1, $2, false)", [name, value]).fetchall()
    except Error as error:
        opened.close()
        raise raised(connect_error(error, connection, kind)) from error
    return opened


_OPENING = Lock()
"""Held while a database is opened, so that a lane's reader and writer wait for one instead of each opening its own."""


@cache
def _database(conninfo: str) -> Any:
    """The driver's idea of a database, kept by the process.

    To open one, the driver reads every type of the catalog, which costs ten times what a connection costs. A type made
    since then does no harm: columns of such types are read as text, and are written by their own binary form.
    """
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(conninfo)


class _Kept:
    """Stands for the database in a connection, which would close it along with itself."""

    def close(self) -> None:
        """Leave it open."""


def connect_error(error: Exception, connection: Connection, kind: ErrorType) -> ErrorInfo:
    """Why a connection could not be opened: refused for good (password, database, rights), or unreachable for now."""
    text = says(error)
    message = f"cannot connect to PostgreSQL at {where_is(connection)} (connection {connection.id!r}): {text}"
    if _REFUSED_LOGIN.search(text):
        return ErrorInfo(kind, message, False, sqlstate_of(error))
    return ErrorInfo(kind, message, True, sqlstate_of(error) or "08006", whole=True)


def sqlstate_of(error: Exception) -> str | None:
    """The SQLSTATE that psycopg2 or ADBC carries, if any."""
    return getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)


def says(error: Exception) -> str:
    """The first line of what the server said, without the driver's own words around it.

    What follows may show the record (``Failing row contains …``), which only a dead letter may do.
    """
    text = str(error).strip()
    while (cleaned := _DRIVER_NOISE.sub("", text).strip()) != text:
        text = cleaned
    found = _SERVER_SAID.search(text)
    return next(iter((found[1] if found else text).splitlines()), type(error).__name__).strip()


def without_values(message: str, state: str | None) -> str:
    """Return the server's message without the values it quotes, for logs and events, which must not show records.

    Data errors (class 22) quote values; errors of other classes quote the names of tables, columns and constraints.
    """
    if state is None or not state.startswith("22"):
        return message
    return _QUOTED.sub("…", message)


def error_info(error: Exception, kind: ErrorType, doing: str = "", *, lost: bool = False) -> ErrorInfo:
    """An error of psycopg2 or ADBC as data (semantics, section 7).

    :param doing: what was being done, for the message
    :param lost: the connection is gone, so what the server did last is unknown
    """
    state = sqlstate_of(error)
    said = without_values(says(error), state)
    text = f"{doing}: {said}" if doing else said
    if lost or (state is None and _is_lost(error)):
        return ErrorInfo(kind, f"{text} (the connection was lost)", True, state or "08006", whole=True)
    if state is None:
        return ErrorInfo(kind, text)
    return ErrorInfo(kind, text, passes(state), state, is_of_all(state))


def _is_lost(error: Exception) -> bool:
    return bool(
        re.search(r"server closed the connection|connection (?:already|is) closed|no connection to|SYSCALL", str(error))
    )


def raised(info: ErrorInfo, hint: str | None = None) -> CkptError:
    """The exception for an error of a source or sink."""
    kind = SourceError if info.type is ErrorType.SOURCE else SinkError
    return kind(info.message, sqlstate=info.sqlstate, recoverable=info.recoverable, whole=info.whole, hint=hint)
