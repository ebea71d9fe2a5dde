"""Claim the receipt of a batch in the open transaction: compare the epochs, lock the fence, insert the receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.receipt_row import to_receipt
from airflow_provider_ckpt.connectors.refuse_fenced_run import refuse_unless_current
from airflow_provider_ckpt.connectors.sql.bookkeeping import RECEIPT, Bookkeeping
from airflow_provider_ckpt.connectors.sql.fence import locked_epoch
from airflow_provider_ckpt.core.receipt import Receipt

if TYPE_CHECKING:
    import sqlalchemy as sa


def claim_receipt(connection: sa.Connection, bookkeeping: Bookkeeping, receipt: Receipt) -> Receipt | None:
    """Lock the fence and insert the receipt; return None, or the existing receipt if the batch has one already.

    If the batch has a receipt already, the transaction is rolled back.

    :param connection: the connection
    :param bookkeeping: the bookkeeping tables
    :param receipt: the receipt to claim, with the epoch of the run
    :raises FencedError: if the fence has a newer epoch than the run
    :raises SinkError: if the fence is absent or has an older epoch
    """
    from sqlalchemy.exc import DBAPIError

    fenced = locked_epoch(connection, bookkeeping)
    refuse_unless_current(fenced, receipt.epoch, bookkeeping.place, bookkeeping.context.pipeline)
    table = bookkeeping.table(RECEIPT)
    try:
        connection.execute(table.insert().values(bookkeeping.receipt_values(receipt)))
    except DBAPIError as error:
        if error.connection_invalidated or not bookkeeping.dialect.classify(error).is_duplicate:
            raise
        connection.rollback()
        found = connection.execute(bookkeeping.receipts().where(bookkeeping.of_batch(table, receipt.key))).one_or_none()
        connection.rollback()
        if found is None:
            raise
        return to_receipt(tuple(found))
    return None
