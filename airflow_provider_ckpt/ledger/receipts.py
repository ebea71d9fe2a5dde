"""Range receipts: what the checkpoint has passed, merged, so that the ledger's size follows gaps, not batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch, Counts, Receipt
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipts import RangeReceipt, merge_receipts
from airflow_provider_ckpt.ledger import tables
from airflow_provider_ckpt.ledger.bulk import insert_missing, upsert

_R = tables.receipt.c

UNTYPED = "unknown"
"""Error type in the dead-letter index where only the receipt is known, and not the report that names types."""

PARKED = "parked"
"""A dead letter's first state (semantics, section 8)."""


def load(connection: Connection, pipeline: str) -> list[RangeReceipt]:
    """All range receipts of a pipeline, in order."""
    rows = connection.execute(
        sa.select(tables.receipt).where(_R.pipeline == pipeline).order_by(_R.generation, _R.partition, _R.range_start)
    )
    return [_from(row) for row in rows.mappings()]


def of_partition(
    connection: Connection, pipeline: str, partition: str, generation: int, *, last_at: int | None = None
) -> list[RangeReceipt]:
    """The range receipts of one partition and generation, in order.

    :param last_at: only the one that begins nearest before this position, and what comes after it
    """
    here = sa.and_(_R.pipeline == pipeline, _R.generation == generation, _R.partition == partition)
    query = sa.select(tables.receipt).where(here).order_by(_R.range_start)
    if last_at is not None:
        nearest = sa.select(sa.func.max(_R.range_start)).where(here, _R.range_start < last_at).scalar_subquery()
        query = query.where(_R.range_start >= sa.func.coalesce(nearest, last_at))
    return [_from(row) for row in connection.execute(query).mappings()]


def write(connection: Connection, pipeline: str, batches: Sequence[Batch]) -> None:
    """Merge resolved batches into the range receipts of their partition and generation."""
    if not batches:
        return
    fresh: dict[tuple[int, str], list[RangeReceipt]] = {}
    for batch in batches:
        fresh.setdefault((batch.key.generation, batch.key.partition), []).append(RangeReceipt.of(batch))
    known = connection.execute(
        sa.select(tables.receipt).where(
            _R.pipeline == pipeline,
            _R.generation.in_(sorted({generation for generation, _ in fresh})),
            _R.partition.in_(sorted({partition for _, partition in fresh})),
        )
    )
    before: dict[tuple[int, str], list[RangeReceipt]] = {}
    for row in known.mappings():
        before.setdefault((row["generation"], row["partition"]), []).append(_from(row))
    rows: list[dict[str, Any]] = []
    for place, items in fresh.items():
        old = before.get(place, [])
        merged = merge_receipts([*old, *items])
        rows += [_row(pipeline, item) for item in merged if item not in old]
        absorbed = {item.range.start for item in old} - {item.range.start for item in merged}
        if absorbed:
            connection.execute(
                tables.receipt.delete().where(
                    _R.pipeline == pipeline,
                    _R.generation == place[0],
                    _R.partition == place[1],
                    _R.range_start.in_(sorted(absorbed)),
                )
            )
    upsert(connection, tables.receipt, rows)


def index_letters(connection: Connection, pipeline: str, letters: Iterable[tuple[Receipt, dict[str, int]]]) -> None:
    """Enter dead letters in the index, by batch and error type.

    :param letters: receipts with their report's counts by error type; what the report does not name is ``unknown``
    """
    rows = []
    for receipt, types in letters:
        rest = receipt.counts.dead_lettered - sum(types.values())
        for name, records in {**types, **({UNTYPED: rest} if rest > 0 else {})}.items():
            rows.append(
                {
                    "pipeline": pipeline,
                    "generation": receipt.key.generation,
                    "partition": receipt.key.partition,
                    "seq": receipt.key.seq,
                    "error_type": name,
                    "attempt": receipt.attempt,
                    "epoch": receipt.epoch,
                    "range_start": receipt.range.start,
                    "range_end": receipt.range.end,
                    "records": records,
                    "state": PARKED,
                    "at": receipt.at,
                }
            )
    insert_missing(connection, tables.dead_letter, rows)


def _from(row: Any) -> RangeReceipt:
    return RangeReceipt(
        row["generation"],
        row["partition"],
        Range(row["range_start"], row["range_end"]),
        Counts(row["read"], row["delivered"], row["filtered"], row["dead_lettered"]),
        row["batches"],
        row["rejected"],
        row["skipped"],
        row["sent"],
    )


def _row(pipeline: str, item: RangeReceipt) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "generation": item.generation,
        "partition": item.partition,
        "range_start": item.range.start,
        "range_end": item.range.end,
        **item.counts.to_json(),
        "batches": item.batches,
        "rejected": item.rejected,
        "skipped": item.skipped,
        "sent": item.sent,
    }
