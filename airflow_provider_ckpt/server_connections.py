"""Look up Airflow connections in processes that run no task, from environment variables and the metadata database.

In such processes, Airflow's own lookup creates ORM objects, for which SQLAlchemy configures all of Airflow's models;
that takes longer than a small run. This module converts the environment variable or the database row to the task SDK's
class of connections, which tasks get too.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_ckpt.core.errors import ConfigError, LedgerUnavailableError

if TYPE_CHECKING:
    from airflow.sdk import Connection

log = logging.getLogger(__name__)


def find_connection(connection_id: str) -> Connection | None:
    """Return an Airflow connection; None if it is not defined, belongs to a team, or its variable is invalid.

    An environment variable, such as ``AIRFLOW_CONN_CKPT``, takes precedence over the database.

    :param connection_id: id of the connection
    :raises AirflowNotFoundException: if a secrets backend or teams are configured, and Airflow does not find the
        connection
    :raises LedgerUnavailableError: if the metadata database cannot be queried. The result is not None then: if the
        ledger's connection counted as undefined, another ledger would be used
    :raises ConfigError: if the stored connection cannot be decrypted
    """
    from airflow.configuration import conf

    if conf.get("secrets", "backend", fallback="") or conf.getboolean("core", "multi_team", fallback=False):
        from airflow.models.connection import Connection as AirflowCoreConnection

        found: Connection = AirflowCoreConnection.get_connection_from_secrets(connection_id)
        return found
    connection: Connection | None
    if text := os.environ.get(f"AIRFLOW_CONN_{connection_id.upper()}", "").strip():
        connection = _from_text(connection_id, text)
    else:
        row = _stored_row(connection_id)
        connection = None if row is None else _from_row(row)
    if connection is not None:
        _mask(connection)
    return connection


def _from_text(connection_id: str, text: str) -> Connection | None:
    """Return the connection that an environment variable defines as JSON or URI; None if the text is invalid."""
    from airflow.sdk import Connection

    try:
        if text.startswith("{"):
            return Connection.from_json(text, conn_id=connection_id)
        return Connection.from_uri(text, conn_id=connection_id)
    except Exception:
        log.debug("The connection %s cannot be read", connection_id, exc_info=True)
        return None


def _mask(connection: Connection) -> None:
    """Keep a connection's password and the secrets in its extra out of Airflow's logs, as Airflow's own lookup does."""
    from airflow.sdk.log import mask_secret

    if connection.password:
        mask_secret(connection.password)
        mask_secret(quote(connection.password, safe=""))
    if connection.extra:
        mask_secret(connection.extra_dejson)


def _stored_row(connection_id: str) -> dict[str, Any] | None:
    """Return a connection's row in the metadata database as a dict; None if there is none, or it belongs to a team.

    :param connection_id: id of the connection
    :raises LedgerUnavailableError: if the database cannot be queried
    """
    import sqlalchemy as sa
    from airflow.utils.session import create_session

    query = sa.text("SELECT * FROM connection WHERE conn_id = :id")
    try:
        with create_session() as session:
            if not sa.inspect(session.connection()).has_table("connection"):
                return None  # the table is missing, as before the first ``airflow db migrate``
            row = session.execute(query, {"id": connection_id}).mappings().one_or_none()
    except sa.exc.SQLAlchemyError as error:
        raise LedgerUnavailableError(
            f"the connection {connection_id!r} could not be looked up in Airflow's metadata database "
            f"({type(error).__name__}).",
            hint="Try again when the database answers; `airflow db check` tells whether it does.",
        ) from error
    return None if row is None or row.get("team_name") is not None else dict(row)


def _from_row(row: dict[str, Any]) -> Connection:
    """Return the connection of a row, with its password and its extra decrypted.

    :param row: row of the table ``connection``
    :raises ConfigError: if the row was encrypted with another Fernet key than Airflow's present one
    """
    from airflow.sdk import Connection
    from cryptography.fernet import InvalidToken

    try:
        password = _decrypted(row["password"], encrypted=row["is_encrypted"])
        extra = _decrypted(row["extra"], encrypted=row["is_extra_encrypted"])
    except InvalidToken:
        raise ConfigError(
            f"the connection {row['conn_id']!r} was encrypted with another key than [core] fernet_key.",
            hint="Set the key with which Airflow's other components run.",
        ) from None
    return Connection(
        conn_id=row["conn_id"],
        conn_type=row["conn_type"],
        host=row["host"],
        schema=row["schema"],
        login=row["login"],
        password=password,
        port=row["port"],
        extra=extra,
    )


def _decrypted(value: str | None, *, encrypted: bool) -> str | None:
    from airflow.models.crypto import get_fernet

    return get_fernet().decrypt(value.encode()).decode() if value and encrypted else value
