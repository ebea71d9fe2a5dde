"""Find the ledger and resolve Airflow connections, inside and outside of a task.

Tasks, triggers, the command line and the database manager all use this module, so that they find the same ledger.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import ConfigError, MissingConnectionError
from airflow_provider_ckpt.server_connections import find_connection

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger

DEFAULT_CONNECTION = "ckpt_default"
"""Id of the ledger's default connection. If it is undefined, Airflow's configuration or AIRFLOW_HOME names the ledger;
any other connection must be defined."""

_FILE_NAME = "ckpt.db"
_HINT = f"Define the connection {DEFAULT_CONNECTION}, or set [ckpt] sql_alchemy_conn."
_HIDDEN_DATABASE = "airflow-db-not-allowed:"


class AirflowConnection(Protocol):
    """Common attributes of Airflow's two connection classes, one in Airflow's core and one in the task SDK."""

    conn_id: Any
    conn_type: Any
    host: Any
    port: Any
    login: Any
    password: Any
    schema: Any

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """The connection's field ``extra``, decoded from JSON."""


@dataclass(frozen=True, slots=True)
class LedgerLocation:
    """Location of the ledger's database.

    :param url: SQLAlchemy URL, which contains the password
    :param origin: name of the connection or option that defines the URL, for messages
    """

    url: str = field(repr=False)
    origin: str

    @property
    def where(self) -> str:
        """Location for messages, without password and options."""
        from airflow_provider_ckpt.ledger.store import database

        return database.describe(database.parse_url(self.url))


def locate_ledger(connection_id: str = DEFAULT_CONNECTION) -> LedgerLocation:
    """Return the location of the ledger, from an Airflow connection, Airflow's configuration or AIRFLOW_HOME.

    :param connection_id: id of the Airflow connection of the ledger. If the default one is undefined, the option
        ``[ckpt] sql_alchemy_conn`` or else the file ``ckpt.db`` in AIRFLOW_HOME is used
    :raises MissingConnectionError: if neither a connection nor the configuration names the ledger
    :raises ConfigError: if the connection does not define a ledger
    """
    found = _look_up(connection_id)
    if found is not None:
        return LedgerLocation(ledger_url(found), f"connection {connection_id}")
    if connection_id != DEFAULT_CONNECTION:
        raise _undefined_error(connection_id)
    return _configured_location() or _embedded_location()


def open_ledger(connection_id: str = DEFAULT_CONNECTION) -> Ledger:
    """Open the ledger that :func:`locate_ledger` finds.

    The ledger must exist, and must have the Alembic revision that this version of the package needs.

    :param connection_id: id of the Airflow connection of the ledger
    :raises ConfigError: if no ledger is defined
    :raises LedgerUnavailableError: if the ledger cannot be opened or has another revision
    """
    from airflow_provider_ckpt.ledger.ledger import Ledger

    return Ledger.open(locate_ledger(connection_id).url)


def resolve_connection(connection_id: str) -> Connection:
    """Return the Airflow connection with the given id, reduced to the fields that connectors need.

    :param connection_id: id of the connection
    :raises MissingConnectionError: if the connection is not defined
    """
    found = airflow_connection(connection_id)
    return Connection(
        id=connection_id,
        type=found.conn_type or "",
        host=found.host or None,
        port=found.port,
        login=found.login or None,
        password=found.password or None,
        schema=found.schema or None,
        extra=found.extra_dejson,
    )


def airflow_connection(connection_id: str) -> AirflowConnection:
    """Return the Airflow connection with the given id as Airflow's own object, as hooks of other providers need it.

    :param connection_id: id of the connection
    :raises MissingConnectionError: if the connection is not defined
    """
    found = _look_up(connection_id)
    if found is None:
        raise _undefined_error(connection_id)
    return found


def ledger_url(connection: AirflowConnection) -> str:
    """Return the SQLAlchemy URL of the ledger that a connection of type ``ckpt``, ``postgres`` or ``sqlite`` defines.

    SQLite: extra ``path``, or a URI with a path and no host (``ckpt:///var/lib/ckpt.db``). PostgreSQL: host, port,
    login, password and database; further extras (``sslmode``, ``options``) are passed to libpq.

    :param connection: the Airflow connection
    :raises ConfigError: if the connection defines neither a PostgreSQL nor an SQLite ledger
    """
    from sqlalchemy.engine import URL

    extra = connection.extra_dejson
    path = _sqlite_path(connection, extra)
    if path is not None:
        if not Path(path).is_absolute():
            raise ConfigError(f"connection {connection.conn_id}: the SQLite path {path!r} is not absolute.")
        return URL.create("sqlite", database=path).render_as_string(hide_password=False)
    if connection.conn_type not in ("ckpt", "postgres") or not connection.host:
        raise ConfigError(
            f"connection {connection.conn_id} of type {connection.conn_type!r} names no ledger.",
            hint="Give host and database for PostgreSQL, or extra path for SQLite.",
        )
    options = {name: str(value) for name, value in extra.items() if value not in (None, "") and name != "path"}
    return URL.create(
        "postgresql+psycopg2",
        username=connection.login or None,
        password=connection.password or None,
        host=connection.host,
        port=connection.port or 5432,
        database=connection.schema or None,
        query=options,
    ).render_as_string(hide_password=False)


def _sqlite_path(connection: AirflowConnection, extra: Mapping[str, Any]) -> str | None:
    """Return the path of the SQLite file that a connection names; None if it does not name a file.

    :param connection: the connection
    :param extra: its field ``extra``, decoded from JSON
    """
    if extra.get("path"):
        return str(extra["path"])
    if connection.conn_type == "postgres":
        return None
    host, schema = connection.host or "", connection.schema or ""
    if not host and schema:
        return "/" + schema.lstrip("/")
    if host.startswith("/") and not schema:
        return str(host)
    return None


def _configured_location() -> LedgerLocation | None:
    """Return the location of the ledger in the option ``[ckpt] sql_alchemy_conn``; None if the option is not set."""
    from airflow.configuration import conf

    url = conf.get("ckpt", "sql_alchemy_conn", fallback=None)
    return LedgerLocation(url, "[ckpt] sql_alchemy_conn") if url else None


def _embedded_location() -> LedgerLocation:
    """Return the location of the ledger's SQLite file in AIRFLOW_HOME.

    The file is used only if Airflow's metadata database is SQLite too. A task cannot see the URL of that database; in a
    task, the file is used only if it exists already.

    :raises MissingConnectionError: if the file cannot be used
    """
    from airflow.configuration import AIRFLOW_HOME, conf

    metadata = conf.get("database", "sql_alchemy_conn", fallback="")
    if not metadata.startswith(("sqlite:", _HIDDEN_DATABASE)):
        raise MissingConnectionError(
            "no connection or option names the ledger, and Airflow's metadata database is not SQLite.", hint=_HINT
        )
    path = Path(AIRFLOW_HOME).absolute() / _FILE_NAME
    if metadata.startswith(_HIDDEN_DATABASE) and not path.exists():
        raise MissingConnectionError(
            f"no connection or option names the ledger, and {path} does not exist.",
            hint=f"{_HINT} Or run: airflow ckpt db migrate",
        )
    return LedgerLocation(f"sqlite:///{path}", f"{_FILE_NAME} in AIRFLOW_HOME")


def _look_up(connection_id: str) -> AirflowConnection | None:
    """Return the Airflow connection with the given id, or None if it is not defined.

    In a task, the task SDK looks up the connection. Other processes read the metadata database themselves.

    :param connection_id: id of the connection
    :raises ConfigError: if the connection's environment variable is set but invalid
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    found: AirflowConnection | None = None
    with suppress(AirflowNotFoundException):
        if hasattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS"):
            from airflow.sdk import BaseHook

            found = BaseHook.get_connection(connection_id)
        else:
            found = find_connection(connection_id)
    variable = f"AIRFLOW_CONN_{connection_id.upper()}"
    if found is None and variable in os.environ:  # Airflow ignores a variable that it cannot parse
        raise ConfigError(f"the environment variable {variable} is set, but it does not define a connection.")
    return found


def _undefined_error(connection_id: str) -> MissingConnectionError:
    """Return the error for a connection id that is not defined."""
    return MissingConnectionError(
        f"the connection {connection_id!r} is not defined, or the secrets backend that holds it does not answer.",
        hint=f"Define it: airflow connections add {connection_id} --conn-uri ..., "
        f"or set AIRFLOW_CONN_{connection_id.upper()}.",
    )
