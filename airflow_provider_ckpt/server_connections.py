"""Look up Airflow connections where there is no task, from environment variables and the metadata database.

Airflow's own lookup there makes objects of its ORM, for which SQLAlchemy configures all of Airflow's models. That takes
longer than a small run. Here, the variable or the row becomes a connection of the task SDK, as tasks have it.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow.sdk import Connection

log = logging.getLogger(__name__)


def find_connection(connection_id: str) -> Connection | None:
    """Return an Airflow connection, or None if it is not defined or its definition is invalid.

    :param connection_id: id of the connection
    :raises AirflowNotFoundException: if a secrets backend or teams are configured, and Airflow does not find it
    """
    from airflow.configuration import conf
    from airflow.sdk import Connection

    if conf.get("secrets", "backend", fallback="") or conf.getboolean("core", "multi_team", fallback=False):
        from airflow.models.connection import Connection as AirflowCoreConnection

        found: Connection = AirflowCoreConnection.get_connection_from_secrets(connection_id)
        return found
    try:
        text = os.environ.get(f"AIRFLOW_CONN_{connection_id.upper()}", "").strip()
        if text.startswith("{"):
            connection = Connection.from_json(text, conn_id=connection_id)
        elif text:
            connection = Connection.from_uri(text, conn_id=connection_id)
        elif (row := _stored_row(connection_id)) is not None:
            connection = _from_row(row)
        else:
            return None
    except Exception:
        log.debug("The connection %s cannot be read", connection_id, exc_info=True)
        return None
    _mask(connection)
    return connection


def _mask(connection: Connection) -> None:
    """Keep the password and the secrets of the extra out of Airflow's logs, as Airflow's own lookup does."""
    from airflow.providers.common.compat.sdk import mask_secret

    if connection.password:
        mask_secret(connection.password)
        mask_secret(quote(connection.password, safe=""))
    if connection.extra:
        mask_secret(connection.extra_dejson)


def _stored_row(connection_id: str) -> dict[str, Any] | None:
    """Return the connection's row in the metadata database as a dict; None if there is none."""
    import sqlalchemy as sa
    from airflow.utils.session import create_session

    with create_session() as session:
        rows = session.execute(sa.text("SELECT * FROM connection WHERE conn_id = :id"), {"id": connection_id})
        row = rows.mappings().one_or_none()
        return None if row is None or row.get("team_name") is not None else dict(row)


def _from_row(row: dict[str, Any]) -> Connection:
    """Return the connection of a row, with its password and its extra decrypted."""
    from airflow.sdk import Connection

    return Connection(
        conn_id=row["conn_id"],
        conn_type=row["conn_type"],
        host=row["host"],
        schema=row["schema"],
        login=row["login"],
        password=_decrypted(row["password"], encrypted=row["is_encrypted"]),
        port=row["port"],
        extra=_decrypted(row["extra"], encrypted=row["is_extra_encrypted"]),
    )


def _decrypted(value: str | None, *, encrypted: bool) -> str | None:
    from airflow.models.crypto import get_fernet

    return get_fernet().decrypt(value.encode()).decode() if value and encrypted else value
