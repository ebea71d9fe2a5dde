"""Raise the fence of the postgres sink, after which no transaction of an older epoch can commit.

The fence is a row of a bookkeeping table with an epoch. Each claim of a receipt compares the run's epoch with it, and
locks the row until the claim's transaction ends. So raising the fence waits for open transactions of older epochs, and
terminates their sessions if they take longer than 2 s.
"""

from __future__ import annotations

import hashlib
import time

from airflow_provider_ckpt.connectors.postgres.durability import with_durable_commit
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.table import Fetch
from airflow_provider_ckpt.connectors.refuse_fenced_run import refuse_if_fenced
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import SinkError

_LOCK_TIMEOUT_MS = 2000
"""Time for which raising the fence waits for older transactions before it ends their sessions, in milliseconds."""

_FENCE_SECONDS = 60.0
"""Time for which raising the fence is retried, in seconds; then it fails with an error."""

_END_OLDER_SESSIONS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE pid <> pg_catalog.pg_backend_pid() AND datname = pg_catalog.current_database()
  AND left(application_name, length({0}::text)) = {0}::text
  AND substr(application_name, length({0}::text) + 1) ~ '^[0-9]{{1,18}}$'
  AND CASE WHEN left(application_name, length({0}::text)) = {0}::text
           THEN substr(application_name, length({0}::text) + 1)::bigint END < {1}::bigint
"""


def session_prefix(context: SinkContext) -> str:
    """Return the first part of the application_name of a pipeline's writing sessions; the rest is the run's epoch."""
    digest = hashlib.sha256(f"{context.ledger}\n{context.pipeline}".encode()).hexdigest()[:24]
    return f"ckpt:{digest}:"


def fenced_epoch(fetch: Fetch, bookkeeping: BookkeepingTables, context: SinkContext) -> int:
    """Return the epoch of the pipeline's fence, 0 if the fence was never raised.

    :param fetch: runs a statement and returns its rows
    :param bookkeeping: the bookkeeping tables
    :param context: ids of the ledger and the pipeline
    """
    rows = fetch(bookkeeping.fence_epoch, [context.ledger, context.pipeline])
    return int(rows[0][0]) if rows else 0


def fence(fetch: Fetch, bookkeeping: BookkeepingTables, context: SinkContext, epoch: int, target: str) -> bool:
    """Raise the fence to an epoch, and end sessions of older epochs that block it for over 2 s.

    :param fetch: runs a statement over the sink's connection, in autocommit mode
    :param bookkeeping: the bookkeeping tables
    :param context: ids of the ledger and the pipeline
    :param epoch: the new epoch
    :param target: name of the target table, for messages
    :return: True if the fence was raised; False if it was at this epoch already
    :raises FencedError: if the fence has a newer epoch
    :raises SinkError: if another transaction keeps the fence locked for a minute
    """
    deadline = time.monotonic() + _FENCE_SECONDS
    while True:
        fenced = fenced_epoch(fetch, bookkeeping, context)
        refuse_if_fenced(fenced, epoch, bookkeeping.place, context.pipeline)
        if fenced == epoch:
            return False
        if try_raise(fetch, bookkeeping, context, epoch):
            return True
        fetch(_END_OLDER_SESSIONS, [session_prefix(context), epoch])
        if time.monotonic() > deadline:
            raise SinkError(
                f"the fence of {target} has been locked by another transaction for {_FENCE_SECONDS:.0f} s.",
                pipeline=context.pipeline,
                sqlstate="55P03",
                recoverable=True,
                hint="Find sessions with application_name ckpt:… in pg_stat_activity, and terminate them.",
            )


def try_raise(fetch: Fetch, bookkeeping: BookkeepingTables, context: SinkContext, epoch: int) -> bool:
    """Try once to raise the fence.

    :param fetch: runs a statement over the sink's connection, in autocommit mode
    :param bookkeeping: the bookkeeping tables
    :param context: ids of the ledger and the pipeline
    :param epoch: the new epoch
    :return: True if the fence was raised; False if another transaction locked it for over 2 s, or raised it as far or
        further meanwhile
    """
    import psycopg2

    statement = f"SELECT pg_catalog.set_config('lock_timeout', '{_LOCK_TIMEOUT_MS}ms', true); {bookkeeping.raise_fence}"
    try:
        return bool(fetch(with_durable_commit(statement), [context.ledger, context.pipeline, epoch]))
    except psycopg2.errors.LockNotAvailable:
        return False
