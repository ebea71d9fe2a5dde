"""Locks of MySQL and MariaDB that statements which change tables wait for: limit the wait, and name who holds them.

Each transaction that has used a table keeps a metadata lock on it until it ends. A statement that drops or changes the
table waits for these locks, by the server's defaults for a day or a year.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

DDL_WAIT = 10
"""Seconds for which a statement that drops or changes a table waits for open transactions on it.

New statements on the table wait behind it.
"""

_LISTED = 5
"""Greatest number of sessions that a message names."""

_OF_TABLE = """
    SELECT DISTINCT t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_HOST
    FROM performance_schema.metadata_locks l JOIN performance_schema.threads t ON t.THREAD_ID = l.OWNER_THREAD_ID
    WHERE l.OBJECT_TYPE = 'TABLE' AND l.OBJECT_SCHEMA = %s AND l.OBJECT_NAME = %s AND l.LOCK_STATUS = 'GRANTED'
        AND t.PROCESSLIST_ID <> CONNECTION_ID()
"""
"""Query of the sessions with a metadata lock on a table; the server lists the locks only if it is configured to."""

_OPEN = """
    SELECT p.ID, p.USER, p.HOST
    FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.ID = x.trx_mysql_thread_id
    WHERE p.ID <> CONNECTION_ID()
    ORDER BY x.trx_started
"""
"""Query of the sessions with open transactions, the oldest first; the user needs the right PROCESS."""


def limit_ddl_wait(connection: sa.Connection) -> None:
    """Limit the time for which the session's next statements wait for metadata locks to :data:`DDL_WAIT`.

    :param connection: the session
    """
    connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {DDL_WAIT:d}")


def lock_holders(connection: sa.Connection, schema: str, table: str, own: Collection[int]) -> list[str]:
    """Return the sessions that may hold a table's metadata lock, such as ``session 12 of ann at web:4711``.

    These are the sessions with a lock on the table, if the server lists locks; else those with open transactions. The
    list is empty if the user may see neither.

    :param connection: the session whose statement has waited in vain
    :param schema: the table's database
    :param table: the table's name
    :param own: ids of sessions of the run itself, which are left out
    """
    from sqlalchemy.exc import DBAPIError

    for query, values in ((_OF_TABLE, (schema, table)), (_OPEN, ())):
        try:
            rows = connection.exec_driver_sql(query, values).all()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            continue  # the user may not see it
        found = [f"session {number} of {user} at {host}" for number, user, host in rows if number not in own]
        if found:
            return found[:_LISTED]
    return []
