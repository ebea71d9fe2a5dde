"""How a lane's transaction begins: with its receipt claimed under the fence, in one round trip.

A bound value would take four more, which small batches feel; so the values are written out as constants. A lane that is
shut out, or comes second, is told by an error of its own statement, not by a row.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import literal, sqlstate_of
from airflow_provider_ckpt.connectors.postgres.receipts import Bookkeeping
from airflow_provider_ckpt.connectors.postgres.table import adbc_fetch
from airflow_provider_ckpt.connectors.protocols import SinkContext
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.errors import CkptError, FencedError, SinkError

_UNIQUE, _NULL = "23505", "23502"


def begin(receipt: Receipt, context: SinkContext, books: Bookkeeping, cursor: Any, settings: str) -> bool:
    """Begin a transaction with the claim.

    :param cursor: an ADBC cursor in autocommit mode
    :param settings: SQL calls that prepare the transaction, for a list of SELECT
    :return: False if there is a receipt already; the transaction is to be rolled back then
    :raises FencedError: if the fence is newer than the writer's epoch
    :raises SinkError: if there is no such fence
    """
    from adbc_driver_manager import Error

    key, span, counts = receipt.key, receipt.range, receipt.counts
    values = (
        *(context.ledger, context.pipeline, receipt.epoch, key.generation, key.partition, key.seq),
        *(span.start, span.end, receipt.verdict.value, receipt.attempt),
        *(counts.read, counts.delivered, counts.filtered, counts.dead_lettered, receipt.at, receipt.bound),
        receipt.positions,
    )
    try:
        claim = books.claim.format(*map(literal, values))
        cursor.executescript(f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {settings}; {claim}")
    except Error as error:
        if sqlstate_of(error) == _UNIQUE:
            return False
        if sqlstate_of(error) == _NULL:
            cursor.executescript("ROLLBACK")
            raise _shut_out(key, context, books, cursor) from error
        raise
    return True


def fenced(context: SinkContext, epoch: int) -> FencedError:
    """A newer epoch holds the fence."""
    return FencedError(
        f"the sink holds epoch {epoch} of this pipeline, so epoch {context.epoch} may not write any more.",
        pipeline=context.pipeline,
        hint="A newer run has taken over; nothing needs to be done.",
    )


def _shut_out(key: BatchKey, context: SinkContext, books: Bookkeeping, cursor: Any) -> CkptError:
    """Why nothing may be claimed: the fence does not stand at the writer's epoch."""
    held = adbc_fetch(cursor)(books.fence_epoch, [context.ledger, context.pipeline])
    if held and held[0][0] > context.epoch:
        return fenced(context, held[0][0])
    return SinkError(
        f"the sink's fence stands at {held[0][0] if held else 'no epoch'}, not at this writer's epoch {context.epoch}.",
        pipeline=context.pipeline,
        batch=str(key),
        hint="The fence is raised before anything is sent; start a new run.",
    )
