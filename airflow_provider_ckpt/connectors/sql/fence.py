"""Raise the sink's fence, after which no transaction of an older epoch can commit.

The fence is a row with an epoch. Each claim of a receipt compares the run's epoch with it, and locks the row in share
mode until the claim's transaction ends. So raising the fence waits for open transactions of older epochs. After 2 s it
ends their sessions, if the database supports that.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.refuse_fenced_run import refuse_if_fenced
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql.bookkeeping import FENCE, Bookkeeping, now
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.core.errors import SinkError

if TYPE_CHECKING:
    import sqlalchemy as sa

_LOCK_SECONDS = 2
"""Time for which raising the fence waits for older transactions before it ends their sessions, in seconds."""

_FENCE_SECONDS = 60.0
"""Time for which raising the fence is retried, in seconds."""

_BUSY = frozenset({"55P03", "40001", "23000"})
"""SQLSTATEs of an attempt that failed because another session holds the lock or has just inserted the fence's row."""


def session_mark(context: SinkContext, epoch: int) -> str:
    """Return the text that marks the sessions which write for a pipeline under an epoch, so that they can be ended.

    See :meth:`.SqlDialect.mark_session`.

    :param context: ids of the ledger and the pipeline
    :param epoch: the epoch
    """
    return f"{owner_digest(context)}:{epoch}"


def owner_digest(context: SinkContext) -> str:
    """Return a digest of the ids of a ledger and a pipeline, 16 hexadecimal digits: a short name for both.

    :param context: ids of the ledger and the pipeline
    """
    return hashlib.sha256(f"{context.ledger}\n{context.pipeline}".encode()).hexdigest()[:16]


def fenced_epoch(connection: sa.Connection, bookkeeping: Bookkeeping) -> int:
    """Return the epoch of the pipeline's fence, 0 if it was never raised.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    """
    return int(connection.execute(_epoch(bookkeeping)).scalar() or 0)


def locked_epoch(connection: sa.Connection, bookkeeping: Bookkeeping) -> int:
    """Lock the fence until the transaction ends, so that it cannot be raised; return its epoch, 0 if never raised.

    :param connection: the connection with the transaction
    :param bookkeeping: the bookkeeping tables
    """
    query = bookkeeping.dialect.fence_lock(_epoch(bookkeeping))
    return int(connection.execute(query).scalar() or 0)


def fence(database: Database, bookkeeping: Bookkeeping, epoch: int, target: str) -> bool:
    """Raise the fence to an epoch, and end sessions of older epochs that block it for over 2 s.

    :param database: the sink's database
    :param bookkeeping: the bookkeeping tables
    :param epoch: the new epoch
    :param target: name of the target, for messages
    :return: True if the fence was raised; False if it was at this epoch already
    :raises FencedError: if the fence has a newer epoch
    :raises SinkError: if another transaction keeps the fence locked for a minute
    """
    context = bookkeeping.context
    deadline = time.monotonic() + _FENCE_SECONDS
    while True:
        with database.session(f"reading the fence of {target}") as connection:
            fenced = fenced_epoch(connection, bookkeeping)
        refuse_if_fenced(fenced, epoch, bookkeeping.place, context.pipeline)
        if fenced == epoch:
            return False
        try:
            if _try_raise(database, bookkeeping, epoch, target):
                return True
        except SinkError as error:
            if error.sqlstate not in _BUSY:
                raise
            if time.monotonic() > deadline:
                raise SinkError(
                    f"the fence of {target} has been locked by another transaction for {_FENCE_SECONDS:.0f} s.",
                    pipeline=context.pipeline,
                    sqlstate=error.sqlstate,
                    recoverable=True,
                    hint="Find the session that holds it, and end it.",
                ) from error
            with database.session(f"ending older sessions of {target}") as connection:
                database.dialect.end_sessions(connection, session_mark(context, fenced))


def _try_raise(database: Database, bookkeeping: Bookkeeping, epoch: int, target: str) -> bool:
    """Try once to raise the fence; return False if it has been raised as far or further meanwhile, else True.

    :param database: the sink's database
    :param bookkeeping: the bookkeeping tables
    :param epoch: the new epoch
    :param target: name of the target, for messages
    :raises SinkError: with a SQLSTATE of :data:`_BUSY`, if another session keeps the fence locked
    """
    table = bookkeeping.table(FENCE)
    context = bookkeeping.context
    with database.session(f"raising the fence of {target}", writes=True) as connection:
        database.dialect.limit_lock_wait(connection, _LOCK_SECONDS)
        found = connection.execute(_epoch(bookkeeping).with_for_update()).scalar()
        if found is None:
            values = {"ledger": context.ledger, "pipeline": context.pipeline, "epoch": epoch, "at": now()}
            connection.execute(table.insert().values(values))
            return True
        if found >= epoch:
            return False
        connection.execute(table.update().where(bookkeeping.mine(table)).values(epoch=epoch, at=now()))
        return True


def _epoch(bookkeeping: Bookkeeping) -> sa.Select[Any]:
    import sqlalchemy as sa

    table = bookkeeping.table(FENCE)
    return sa.select(table.c.epoch).where(bookkeeping.mine(table))
