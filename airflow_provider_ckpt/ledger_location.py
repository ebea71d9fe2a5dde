"""Where the ledger lives, and how an Airflow connection id becomes a connection, in a task and outside of one.

Every place (task, trigger, command line, database manager) asks here, so that all of them find the same ledger.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core.errors import ConfigError, MissingConnectionError

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger

DEFAULT_CONNECTION = "ckpt_default"
"""The one connection id that may be missing; then the configuration says where the ledger is."""

_FILE = "ckpt.db"
_HOW = f"Define the connection {DEFAULT_CONNECTION}, or set [ckpt] sql_alchemy_conn."
_NO_DATABASE = "airflow-db-not-allowed:"


class AirflowConnection(Protocol):
    """What Airflow's two connection classes, the core's and the task SDK's, have in common."""

    conn_id: Any
    conn_type: Any
    host: Any
    port: Any
    login: Any
    password: Any
    schema: Any

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """The extra field, decoded."""


@dataclass(frozen=True, slots=True)
class LedgerLocation:
    """Where the ledger is.

    :param url: an SQLAlchemy URL that holds the password
    :param origin: what says so, for messages
    """

    url: str = field(repr=False)
    origin: str

    @property
    def where(self) -> str:
        """The place without password and options, for people."""
        from airflow_provider_ckpt.ledger.store import database

        return database.describe(database.parse(self.url))


def locate_ledger(connection_id: str = DEFAULT_CONNECTION) -> LedgerLocation:
    """Find the ledger.

    :param connection_id: an Airflow connection; the default one may be missing: then ``[ckpt] sql_alchemy_conn``
        says where, or it is ``ckpt.db`` in AIRFLOW_HOME
    :raises MissingConnectionError: if nothing says where the ledger is
    :raises ConfigError: if what says so cannot be used
    """
    found = _look_up(connection_id)
    if found is not None:
        return LedgerLocation(ledger_url(found), f"connection {connection_id}")
    if connection_id != DEFAULT_CONNECTION:
        raise _undefined(connection_id)
    return _configured() or _embedded()


def open_ledger(connection_id: str = DEFAULT_CONNECTION) -> Ledger:
    """Open the ledger that :func:`locate_ledger` finds; it must exist and be at the right revision.

    :raises ConfigError: as :func:`locate_ledger`
    :raises LedgerUnavailableError: if it cannot be opened or is at the wrong revision
    """
    from airflow_provider_ckpt.ledger.ledger import Ledger

    return Ledger.open(locate_ledger(connection_id).url)


def resolve_connection(connection_id: str) -> Connection:
    """An Airflow connection, reduced to what connectors need.

    :raises MissingConnectionError: if it is not defined
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
    """An Airflow connection as Airflow has it, for another provider's hook.

    :raises MissingConnectionError: if it is not defined
    """
    found = _look_up(connection_id)
    if found is None:
        raise _undefined(connection_id)
    return found


def ledger_url(connection: AirflowConnection) -> str:
    """The SQLAlchemy URL of a ledger from a connection of type ``ckpt``, ``postgres`` or ``sqlite``.

    SQLite: extra ``path``, or a URI with a path and no host (``ckpt:///var/lib/ckpt.db``). PostgreSQL: host, port,
    login, password and database; further extras (``sslmode``, ``options``) go to libpq.

    :raises ConfigError: if the connection names neither
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


def _configured() -> LedgerLocation | None:
    from airflow.configuration import conf

    url = conf.get("ckpt", "sql_alchemy_conn", fallback=None)
    return LedgerLocation(url, "[ckpt] sql_alchemy_conn") if url else None


def _embedded() -> LedgerLocation:
    """The file in AIRFLOW_HOME. A task may not see the metadata database's URL; there the file's existence decides."""
    from airflow.configuration import AIRFLOW_HOME, conf

    metadata = conf.get("database", "sql_alchemy_conn", fallback="")
    if not metadata.startswith(("sqlite:", _NO_DATABASE)):
        raise MissingConnectionError(
            "nothing says where the ledger is, and Airflow's metadata database is not SQLite.", hint=_HOW
        )
    path = Path(AIRFLOW_HOME).absolute() / _FILE
    if metadata.startswith(_NO_DATABASE) and not path.exists():
        raise MissingConnectionError(
            f"nothing says where the ledger is, and there is no {path}.", hint=f"{_HOW} Or run: airflow ckpt db migrate"
        )
    return LedgerLocation(f"sqlite:///{path}", f"{_FILE} in AIRFLOW_HOME")


def _look_up(connection_id: str) -> AirflowConnection | None:
    """Ask Airflow: in a task the SDK; elsewhere the core, since there the SDK does not see the metadata database."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    found: AirflowConnection
    variable = f"AIRFLOW_CONN_{connection_id.upper()}"
    try:
        if hasattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS"):
            from airflow.sdk import BaseHook

            found = BaseHook.get_connection(connection_id)
        else:
            from airflow.models.connection import Connection as CoreConnection

            found = CoreConnection.get_connection_from_secrets(connection_id)
    except AirflowNotFoundException:
        if variable in os.environ:  # Airflow passes over a variable that it cannot read, as if it were not there
            raise ConfigError(f"the environment variable {variable} is set, but it is no connection.") from None
        return None
    return found


def _undefined(connection_id: str) -> MissingConnectionError:
    return MissingConnectionError(
        f"the connection {connection_id!r} is not defined, or the secrets backend that holds it does not answer.",
        hint=f"Define it: airflow connections add {connection_id} --conn-uri ..., "
        f"or set AIRFLOW_CONN_{connection_id.upper()}.",
    )
