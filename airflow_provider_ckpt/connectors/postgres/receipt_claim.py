"""Claim a batch's receipt: begin a transaction, compare the fence's epoch with the run's, and insert the receipt.

The claim takes one round trip to the server. Values are written into the SQL as constants, since binding them would
take four more. A second claim of a batch, or a claim under a stale epoch, fails with an SQL error and changes nothing.
"""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import literal, sqlstate_of
from airflow_provider_ckpt.connectors.postgres.fence import fenced_epoch
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.table import adbc_fetch
from airflow_provider_ckpt.connectors.refuse_fenced_run import wrong_epoch_error
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.receipt import Receipt

_UNIQUE_VIOLATION, _NOT_NULL_VIOLATION = "23505", "23502"


def claim_script(receipt: Receipt, context: SinkContext, bookkeeping: BookkeepingTables, settings: str) -> str:
    """Return the SQL statements that begin a transaction and claim the receipt in it.

    They fail with SQLSTATE 23505 if the batch has a receipt already, and with 23502 if the fence has another epoch.

    :param receipt: the receipt to claim
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param bookkeeping: the bookkeeping tables
    :param settings: function calls in SQL that prepare the transaction, written as the expressions of a SELECT
    """
    key, span, counts = receipt.key, receipt.range, receipt.counts
    values = (
        *(context.ledger, context.pipeline, receipt.epoch, key.generation, key.partition, key.seq),
        *(span.start, span.end, receipt.verdict.value, receipt.attempt),
        *(counts.read, counts.delivered, counts.filtered, counts.dead_lettered, receipt.at, receipt.bound),
        receipt.positions,
    )
    claim = bookkeeping.claim.format(*map(literal, values))
    return f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {settings}; {claim}"


def begin_with_claim(
    receipt: Receipt, context: SinkContext, bookkeeping: BookkeepingTables, cursor: Any, settings: str
) -> bool:
    """Begin a transaction and claim the receipt in it.

    :param receipt: the receipt to claim
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param bookkeeping: the bookkeeping tables
    :param cursor: an ADBC cursor in autocommit mode
    :param settings: function calls in SQL that prepare the transaction, written as the expressions of a SELECT
    :return: True if the receipt was claimed and the transaction is open; False if the batch has a receipt already, and
        the caller must roll the transaction back
    :raises FencedError: if the fence has a newer epoch than the run
    :raises SinkError: if the fence is absent or has an older epoch
    """
    from adbc_driver_manager import Error

    try:
        cursor.executescript(claim_script(receipt, context, bookkeeping, settings))
    except Error as error:
        if sqlstate_of(error) == _UNIQUE_VIOLATION:
            return False
        if sqlstate_of(error) == _NOT_NULL_VIOLATION:
            cursor.executescript("ROLLBACK")
            fenced = fenced_epoch(adbc_fetch(cursor), bookkeeping, context)
            raise wrong_epoch_error(fenced, context.epoch, bookkeeping.place, context.pipeline) from error
        raise
    return True
