"""Open the ledger's database, PostgreSQL or an existing SQLite file, and turn driver errors into errors for users.

SQLite runs in WAL mode with ``synchronous=FULL``. A command begins with ``BEGIN IMMEDIATE``, so that processes wait for
the write lock at the beginning instead of failing halfway. A query reads a snapshot and blocks no other process.
"""

from __future__ import annotations

import select
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError, LedgerUnavailableError

MIGRATE = "Run `airflow ckpt db migrate`."
"""Hint in errors about a ledger that does not exist or is at another schema revision."""

_BUSY_SECONDS = 30.0
_TRUSTED_SECONDS = 1.0
"""Seconds after its last use during which a pooled connection is used again without a test statement.

A connection with unread data is always tested, since the server may have ended it.
"""

_MAX_CONNECTIONS = 6
"""Largest number of connections of a process to one ledger. None is closed after its use, since runs of several
pipelines in one process use several at a time, and opening one takes as long as ten commands."""

_USED = "ckpt_used"
"""Key in the ``info`` of a pooled connection under which the time of its last use is stored."""

_POSTGRES = ("postgres", "postgresql", "postgresql+psycopg2")
_POSTGRES_SESSION = """
    SET idle_in_transaction_session_timeout = '15s';
    SET lock_timeout = '30s';
    SET timezone = 'UTC';
    SET jit = off
"""
"""Settings of every PostgreSQL session on the ledger.

The timeouts end the transaction of a process that is suspended inside a command, and so release the lease row. JIT is
off because the statements touch few rows, and compiling them would take longer than executing them.
"""


def parse_url(url: str) -> URL:
    """Return a ledger's URL as SQLAlchemy's URL object, after checking that a ledger can be stored there.

    :param url: ``postgresql://…`` (psycopg2) or ``sqlite:///path``
    :raises ConfigError: if the URL has another scheme, or cannot be read; the message never shows a password
    """
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError(
            "the ledger's address cannot be read.",
            hint="Write postgresql://user:password@host:port/database or sqlite:////absolute/path.db.",
        ) from None
    if parsed.drivername in _POSTGRES:
        return parsed.set(drivername="postgresql+psycopg2")
    if parsed.get_backend_name() != "sqlite":
        raise ConfigError(
            f"the ledger cannot be stored in {parsed.drivername!r}.", hint="Use postgresql:// or sqlite:///path."
        )
    if not parsed.database or parsed.database == ":memory:":
        raise ConfigError(
            "a ledger in memory is lost when the process ends.",
            hint="Write sqlite:/// and the absolute path of a file.",
        )
    return parsed


def describe(url: URL) -> str:
    """Return the ledger's location for messages, without password, such as ``PostgreSQL ann@db:5432/ckpt``."""
    if url.get_backend_name() == "sqlite":
        return f"SQLite file {url.database}"
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"PostgreSQL {user}{url.host or 'local socket'}{port}/{url.database or ''}"


def create_engine(url: URL) -> Engine:
    """Create an SQLAlchemy engine for the ledger's database.

    No connection is opened yet. The engine never creates a missing SQLite file.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite(Path(str(url.database)).absolute())
    engine = sa.create_engine(
        url,
        pool_size=_MAX_CONNECTIONS,
        max_overflow=0,
        pool_use_lifo=True,
        hide_parameters=True,
        connect_args={"connect_timeout": 10, "application_name": "ckpt-ledger"},
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, record: ConnectionPoolEntry) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_POSTGRES_SESSION)
        connection.commit()
        record.info[_USED] = time.monotonic()

    @sa.event.listens_for(engine, "checkin")
    def used(_: object, record: ConnectionPoolEntry) -> None:
        record.info[_USED] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def replace_dead(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        idle = time.monotonic() - record.info[_USED]
        if (idle > _TRUSTED_SECONDS or _has_unread_data(connection)) and not _answers(engine, connection):
            raise DisconnectionError  # the pool opens another connection

    return engine


def _has_unread_data(connection: Any) -> bool:
    """Return whether an idle connection has received data, which shows that the server has ended it."""
    import psycopg2

    try:
        return bool(select.select([connection.fileno()], [], [], 0)[0])
    except (OSError, ValueError, psycopg2.Error):
        return True


def _answers(engine: Engine, connection: Any) -> bool:
    """Return whether the server answers a statement on a connection."""
    import psycopg2

    try:
        return engine.dialect.do_ping(connection)
    except psycopg2.Error:
        return False


def _sqlite(path: Path) -> Engine:
    address = f"file:{quote(str(path))}?mode=rw"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    engine = sa.create_engine(
        "sqlite://",
        creator=connect,
        poolclass=sa.QueuePool,
        pool_size=_MAX_CONNECTIONS,
        max_overflow=0,
        pool_use_lifo=True,
        hide_parameters=True,
    )

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("ckpt_begin", "BEGIN IMMEDIATE"))

    return engine


@contextmanager
def translate_errors(description: str) -> Iterator[None]:
    """Turn driver errors raised in the ``with`` block into one-line errors with a hint for the user.

    :param description: location of the ledger, see :func:`describe`
    :raises LedgerUnavailableError: if the database did not execute a statement, or no pooled connection became free
    :raises LedgerStateError: if the database cannot store a value
    """
    try:
        yield
    except (DataError, OverflowError, UnicodeEncodeError) as error:
        cause = error.orig if isinstance(error, DataError) else error
        raise LedgerStateError(
            f"the ledger in {description} cannot store a value: {str(cause).strip().splitlines()[0]}.",
            hint="Nothing of this command was stored; positions must fit into 64 bits, and names into UTF-8.",
        ) from error
    except DBAPIError as error:
        lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        raise LedgerUnavailableError(
            f"the ledger in {description} reported an error: {lines[0]}.",
            hint=_hint(lines[0]),
            sqlstate=getattr(error.orig, "pgcode", None),
            recoverable=True,
        ) from error
    except PoolTimeout as error:
        raise LedgerUnavailableError(f"no connection to the ledger in {description} became free in time.") from error


def _hint(line: str) -> str:
    text = line.lower()
    if "full" in text or "no space" in text or "disk i/o" in text:  # SQLite: not even its index fits on the disk
        return "Make room; nothing of this command was stored, and the next run continues from the checkpoint."
    if "locked" in text or "lock timeout" in text:
        return "Another process has locked the ledger. `airflow ckpt status` shows which run is active; then run again."
    if "permission denied" in text:
        return (
            "The connection's user lacks a privilege: see `airflow ckpt db roles ledger`. Only the owner may migrate "
            "the ledger and delete history."
        )
    if "not a database" in text or "malformed" in text:
        return "Restore the file from a backup, or configure another ledger."
    return "Check that the database is up and that the connection's address and credentials are right, then run again."


@contextmanager
def open_transaction(engine: Engine, description: str, patience: timedelta | None = None) -> Iterator[Connection]:
    """Open the transaction of one command, in a ``with`` block: it is committed at the end, or rolled back on an error.

    :param engine: engine of the ledger's database
    :param description: location of the ledger, see :func:`describe`
    :param patience: limit on the duration of one SQL statement and of waiting for locks; None for the defaults
    """
    with (
        translate_errors(description),
        engine.connect() as connection,
        _sqlite_timeout(connection, patience),
        connection.begin(),
    ):
        if patience is not None and engine.dialect.name == "postgresql":
            limit = f"{max(round(patience.total_seconds() * 1000), 1)}ms"
            settings = (sa.func.set_config(name, limit, True) for name in ("statement_timeout", "lock_timeout"))
            connection.execute(sa.select(*settings))
        yield connection


@contextmanager
def _sqlite_timeout(connection: Connection, patience: timedelta | None) -> Iterator[None]:
    """Limit the time that SQLite waits for its write lock, for the duration of the ``with`` block.

    The setting belongs to the connection, which is reused, so the default is restored at the end. Other databases are
    not affected.

    :param connection: connection to the ledger
    :param patience: the limit; None to leave the setting unchanged
    """
    if patience is None or connection.dialect.name != "sqlite":
        yield
        return
    driver = cast("sqlite3.Connection", connection.connection.driver_connection)
    driver.execute(f"PRAGMA busy_timeout = {max(round(patience.total_seconds() * 1000), 1)}")
    try:
        yield
    finally:
        driver.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000:.0f}")


@contextmanager
def open_snapshot(engine: Engine, description: str) -> Iterator[Connection]:
    """Open a transaction for queries, in a ``with`` block: it reads one consistent snapshot and blocks no command.

    :param engine: engine of the ledger's database
    :param description: location of the ledger, see :func:`describe`
    """
    with translate_errors(description), engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            yield connection.execution_options(ckpt_begin="BEGIN")
        else:
            yield connection.execution_options(isolation_level="REPEATABLE READ")
