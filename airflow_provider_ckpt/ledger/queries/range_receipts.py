"""Read range receipts from the ledger; ``store/receipts.py`` writes them."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.receipts import from_row

_R = tables.receipt.c


def load(connection: Connection, pipeline: str) -> list[RangeReceipt]:
    """Return all range receipts of a pipeline, ordered by generation, partition and position."""
    rows = connection.execute(
        sa.select(tables.receipt).where(_R.pipeline == pipeline).order_by(_R.generation, _R.partition, _R.range_start)
    )
    return [from_row(row) for row in rows.mappings()]


def of_partition(
    connection: Connection, pipeline: str, partition: str, generation: int, *, last_at: int | None = None
) -> list[RangeReceipt]:
    """Return the range receipts of one partition and generation, in ascending order of their ranges.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param partition: id of the partition
    :param generation: the generation
    :param last_at: a position; the last receipt that begins before it and all later receipts are returned. None for all
        receipts
    """
    of_generation = sa.and_(_R.pipeline == pipeline, _R.generation == generation, _R.partition == partition)
    query = sa.select(tables.receipt).where(of_generation).order_by(_R.range_start)
    if last_at is not None:
        nearest = (
            sa.select(sa.func.max(_R.range_start)).where(of_generation, _R.range_start < last_at).scalar_subquery()
        )
        query = query.where(_R.range_start >= sa.func.coalesce(nearest, last_at))
    return [from_row(row) for row in connection.execute(query).mappings()]


def newest(connection: Connection, pipeline: str, partition: str, generation: int, *, limit: int) -> list[RangeReceipt]:
    """Return the range receipts of one partition and generation that have the highest positions, in ascending order.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param partition: id of the partition
    :param generation: the generation
    :param limit: maximum number of receipts
    """
    of_generation = sa.and_(_R.pipeline == pipeline, _R.generation == generation, _R.partition == partition)
    query = sa.select(tables.receipt).where(of_generation).order_by(_R.range_start.desc()).limit(limit)
    return [from_row(row) for row in connection.execute(query).mappings()][::-1]
