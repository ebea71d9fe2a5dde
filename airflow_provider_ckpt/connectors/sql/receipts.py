"""Read the receipts that a sink has stored beside its target, with a cost that known receipts do not add to.

All queries follow the primary key of the table: ledger, pipeline, generation, partition, seq. Within a partition of one
generation, positions grow with the seq, so the receipts are read from the newest back to the first that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.receipt_row import to_receipt
from airflow_provider_ckpt.connectors.sql.bookkeeping import RECEIPT, Bookkeeping
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt

if TYPE_CHECKING:
    import sqlalchemy as sa

_NOTHING_KNOWN = KnownReceipts(0, 0)
_READ_TOGETHER = 500
"""Greatest number of receipts that one query reads or looks up."""


def read_unknown(
    connection: sa.Connection, bookkeeping: Bookkeeping, known: Mapping[str, KnownReceipts]
) -> list[Receipt]:
    """Return the pipeline's receipts that the ledger does not know, ordered by key; see :meth:`Sink.receipts`.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    :param known: for each partition, the generation and position up to which the ledger knows all receipts
    """
    found: list[Receipt] = []
    for generation, partition in _partitions(connection, bookkeeping):
        known_generation, known_position = known.get(partition, _NOTHING_KNOWN)
        if generation > known_generation:
            found += _from_newest(connection, bookkeeping, generation, partition, None)
        elif generation == known_generation:
            found += _from_newest(connection, bookkeeping, generation, partition, known_position)
    return sorted(found, key=lambda receipt: receipt.key)


def without_receipt(connection: sa.Connection, bookkeeping: Bookkeeping, keys: Sequence[BatchKey]) -> list[BatchKey]:
    """Return the given batches that have no receipt.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    :param keys: the batches
    """
    import sqlalchemy as sa

    found: set[BatchKey] = set()
    table = bookkeeping.table(RECEIPT)
    for start in range(0, len(keys), _READ_TOGETHER):
        wanted = sa.or_(*(bookkeeping.of_batch(table, key) for key in keys[start : start + _READ_TOGETHER]))
        query = sa.select(table.c.generation, table.c.partition, table.c.seq).where(wanted)
        found.update(BatchKey(*row) for row in connection.execute(query))
    return [key for key in keys if key not in found]


def _partitions(connection: sa.Connection, bookkeeping: Bookkeeping) -> Iterator[tuple[int, str]]:
    """Yield each generation and partition that has receipts; each costs one look-up in the primary key.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    """
    import sqlalchemy as sa

    table = bookkeeping.table(RECEIPT)
    generation, partition = table.c.generation, table.c.partition
    query = sa.select(generation, partition).where(bookkeeping.mine(table)).order_by(generation, partition).limit(1)
    found = connection.execute(query).one_or_none()
    while found is not None:
        yield found[0], found[1]
        rest_of_generation = query.where((generation == found[0]) & (partition > found[1]))
        later_generations = query.where(generation > found[0])
        found = (
            connection.execute(rest_of_generation).one_or_none() or connection.execute(later_generations).one_or_none()
        )


def _from_newest(
    connection: sa.Connection, bookkeeping: Bookkeeping, generation: int, partition: str, known_position: int | None
) -> Iterator[Receipt]:
    """Yield the receipts of a partition and generation from the newest back to the first that is known.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    :param generation: the generation
    :param partition: the partition
    :param known_position: position up to which all receipts are known; None if none is
    """
    table = bookkeeping.table(RECEIPT)
    of_partition = (table.c.generation == generation) & (table.c.partition == partition)
    query = bookkeeping.receipts().where(of_partition).order_by(table.c.seq.desc()).limit(_READ_TOGETHER)
    rows = connection.execute(query).all()
    while rows:
        for row in rows:
            receipt = to_receipt(tuple(row))
            if known_position is not None and receipt.range.end <= known_position:
                return
            yield receipt
        rows = (
            connection.execute(query.where(table.c.seq < receipt.key.seq)).all() if len(rows) == _READ_TOGETHER else []
        )
