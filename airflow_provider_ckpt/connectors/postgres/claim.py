"""Begin a lane's transaction and claim its receipt under the fence, in one round trip.

Values are written into the SQL as constants, since binding them would take four more round trips. A fenced or duplicate
claim raises an SQL error instead of returning a row.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.connectors.fencing import wrong_epoch_error
from airflow_provider_ckpt.connectors.postgres.client import literal, sqlstate_of
from airflow_provider_ckpt.connectors.postgres.fence import fenced_epoch
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.table import adbc_fetch
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.receipt import Receipt

_UNIQUE_VIOLATION, _NOT_NULL_VIOLATION = "23505", "23502"


def begin_with_claim(
    receipt: Receipt, context: SinkContext, bookkeeping: BookkeepingTables, cursor: Any, settings: str
) -> bool:
    """Begin a transaction and claim the receipt in it.

    :param receipt: the receipt to claim
    :param context: ledger, pipeline and epoch of the writer
    :param bookkeeping: the bookkeeping tables
    :param cursor: an ADBC cursor in autocommit mode
    :param settings: SQL calls that prepare the transaction, as the expressions of a SELECT
    :return: False if there is a receipt already; the caller then rolls back the transaction
    :raises FencedError: if the fence has a newer epoch than the writer
    :raises SinkError: if the fence is absent or has an older epoch
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
        claim = bookkeeping.claim.format(*map(literal, values))
        cursor.executescript(f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {settings}; {claim}")
    except Error as error:
        if sqlstate_of(error) == _UNIQUE_VIOLATION:
            return False
        if sqlstate_of(error) == _NOT_NULL_VIOLATION:
            cursor.executescript("ROLLBACK")
            fenced = fenced_epoch(adbc_fetch(cursor), bookkeeping, context)
            raise wrong_epoch_error(fenced, context.epoch, bookkeeping.place, context.pipeline) from error
        raise
    return True
