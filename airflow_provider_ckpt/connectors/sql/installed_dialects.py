"""Find the dialect of a connection's database: built in, installed by another distribution, or the general dialect."""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sql.dialect import SqlDialect
from airflow_provider_ckpt.core.errors import ConfigError

GROUP = "airflow_provider_ckpt.sql_dialects"
"""Name of the group of entry points by which distributions add dialects."""

_HERE = "airflow_provider_ckpt.connectors.sql"
_BUILT_IN = {"mysql": f"{_HERE}.mysql:MySqlDialect", "sqlite": f"{_HERE}.sqlite:SqliteDialect"}
_SCHEME = "sqlalchemy_scheme"
"""Key of a connection's extra that names SQLAlchemy's dialect and driver, as in Airflow's ODBC connections."""


def require_connection(connection: Connection | None, side: str) -> Connection:
    """Return the connection, after checking that there is one.

    :param connection: the Airflow connection; None if the pipeline names none
    :param side: ``source`` or ``sink``, for the message
    :raises ConfigError: if there is no connection
    """
    if connection is None:
        raise ConfigError(
            f"the sql {side} has no connection.", hint=f"Name an Airflow connection in {side}.connection."
        )
    return connection


def find_dialect(connection: Connection, side: str) -> SqlDialect:
    """Return the dialect of a connection's database, by the connection's type or its extra ``sqlalchemy_scheme``.

    :param connection: the Airflow connection
    :param side: ``source`` or ``sink``, for the message
    :raises ConfigError: if neither names a database, or its driver is not installed
    """
    scheme = str(connection.extra.get(_SCHEME, ""))
    wanted = scheme.partition("+")[0] or connection.type
    known = _dialects()
    name = next((name for name, found in known.items() if wanted in (name, *found.connection_types)), None)
    dialect = known[name]() if name else _general(wanted, scheme or wanted)
    if dialect is None:
        raise ConfigError(
            f"connection {connection.id!r} of the sql {side} has type {connection.type!r}, which is no SQL database.",
            hint=f"Use a connection of type {' or '.join(sorted(known))}, or name SQLAlchemy's dialect and driver in "
            f'its extra: {{"{_SCHEME}": "oracle+oracledb"}}.',
        )
    if "+" in scheme:
        dialect.drivername = scheme
    return dialect


@cache
def _dialects() -> dict[str, type[SqlDialect]]:
    paths = dict(_BUILT_IN)
    for point in metadata.entry_points(group=GROUP):
        paths.setdefault(point.name, point.value)
    found = {}
    for name, path in paths.items():
        module, _, attribute = path.partition(":")
        found[name] = getattr(import_module(module), attribute)
    return found


def _general(name: str, drivername: str) -> SqlDialect | None:
    """Return the general dialect for a database without a dialect of its own; None if SQLAlchemy does not know it.

    :param name: SQLAlchemy's name of the dialect
    :param drivername: SQLAlchemy's name of dialect and driver
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        make_url(f"{drivername}://").get_dialect()
    except (NoSuchModuleError, ArgumentError):
        return None
    dialect = SqlDialect()
    dialect.name = dialect.label = name
    dialect.drivername = drivername
    return dialect
