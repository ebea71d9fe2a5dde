"""Read the receipts that a sink has stored beside its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.receipt_row import to_receipt
from airflow_provider_ckpt.connectors.sql.bookkeeping import RECEIPT, Bookkeeping
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt

if TYPE_CHECKING:
    import sqlalchemy as sa

_NOTHING_KNOWN = KnownReceipts(0, 0)
_SEARCHED = 500
"""Greatest number of batches whose receipts are looked up by one query."""


def read_unknown(
    connection: sa.Connection, bookkeeping: Bookkeeping, known: Mapping[str, KnownReceipts]
) -> list[Receipt]:
    """Return the pipeline's receipts that the ledger does not know, ordered by key; see :meth:`Sink.receipts`.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    :param known: for each partition, the generation and position up to which the ledger knows all receipts
    """
    import sqlalchemy as sa

    table = bookkeeping.table(RECEIPT)
    # Not from the newest back to the first known one: a batch that fills a gap is newer than those beyond it.
    query = sa.select(table.c.partition).where(bookkeeping.mine(table)).distinct()
    rows: list[Any] = []
    for (partition,) in connection.execute(query).all():
        generation, position = known.get(partition, _NOTHING_KNOWN)
        newer = (table.c.generation > generation) | (
            (table.c.generation == generation) & (table.c.range_end > position)
        )
        rows += connection.execute(bookkeeping.receipts().where((table.c.partition == partition) & newer)).all()
    return sorted((to_receipt(tuple(row)) for row in rows), key=lambda receipt: receipt.key)


def without_receipt(connection: sa.Connection, bookkeeping: Bookkeeping, keys: Sequence[BatchKey]) -> list[BatchKey]:
    """Return the given batches that have no receipt.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    :param keys: the batches
    """
    import sqlalchemy as sa

    found: set[BatchKey] = set()
    table = bookkeeping.table(RECEIPT)
    for start in range(0, len(keys), _SEARCHED):
        wanted = sa.or_(*(bookkeeping.of_batch(table, key) for key in keys[start : start + _SEARCHED]))
        query = sa.select(table.c.generation, table.c.partition, table.c.seq).where(wanted)
        found.update(BatchKey(*row) for row in connection.execute(query))
    return [key for key in keys if key not in found]
