"""List the running transactions of InnoDB, so that a source can wait for them to end.

The server answers from a copy of its list of transactions, which it renews from time to time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

_LONGEST_LOOK = 5.0
"""Longest wait, in seconds, for a new copy of the server's list; after it, the transactions count as not visible."""

_PAUSE = 0.11
"""Seconds between two queries: the server renews its copy of the list only after 0.1 s without a query."""

_RUNNING = "SELECT trx_id, trx_mysql_thread_id, trx_started FROM information_schema.innodb_trx"


def running_transactions(connection: sa.Connection) -> frozenset[str] | None:
    """Return names of the transactions that run in InnoDB now, without this session's own.

    :param connection: a connection outside of any transaction
    :return: the names; None if they cannot be seen: without the right ``PROCESS``, or if the server's copy of its list
        of transactions is not renewed
    """
    from sqlalchemy.exc import DBAPIError

    own = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar()
    connection.commit()
    connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    deadline = time.monotonic() + _LONGEST_LOOK
    try:
        while time.monotonic() < deadline:
            rows = connection.exec_driver_sql(_RUNNING).all()
            if any(session == own for _, session, _ in rows):
                return frozenset(_name(*row) for row in rows if row[1] != own)
            time.sleep(_PAUSE)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
    finally:
        if not connection.invalidated:
            connection.rollback()
    return None


def _name(number: object, session: object, at: object) -> str:
    """Return a name that identifies a transaction for its whole life: its session and the time at which it began.

    The transaction's number is not a name, since it changes when the transaction first writes. Only for a prepared
    transaction without a session, which writes no more, the number is the name.

    :param number: its present number
    :param session: number of its session; 0 for a prepared transaction without a session
    :param at: time at which it began
    """
    return f"{session}:{at}" if session else f"prepared:{number}"
