"""Store receipts in the table ``receipt``: merged into ranges below the low watermark, one row per batch above it.

The size of the ledger therefore depends on gaps and on the recovery window, not on the number of all batches. Rows that
begin below the low watermark neither touch nor overlap each other, so one look-up of the nearest row is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.range_receipts import RangeReceipt, merge_receipts
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger.store import bulk_sql, tables

_R = tables.receipt.c
_PLACE = ("pipeline", "generation", "partition")
_COLUMNS = tuple(column.name for column in tables.receipt.columns)


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of the table ``receipt`` of one partition and generation whose ranges begin within an interval of positions.

    :param generation: the generation
    :param partition: id of the partition
    :param start: first position of the interval
    :param below: exclusive end of the interval
    """

    generation: int
    partition: str
    start: int
    below: int


def add_single(connection: Connection, pipeline: str, batches: Iterable[Batch]) -> None:
    """Store the receipts of resolved batches, one row per batch.

    A row with the same start may exist already, if the range of the receipt in the sink differed from that of the
    batch; the receipt is then merged into that row.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param batches: the batches
    """
    fresh: dict[tuple[int, str, int], tuple[Any, ...]] = {}
    replaced: list[tuple[Any, ...]] = []
    for batch in batches:
        position = (batch.key.generation, batch.key.partition, batch.range.start)
        row = (pipeline, *position, batch.range.end, *_totals_of(batch))
        if position in fresh:
            replaced.append(row)
        else:
            fresh[position] = row
    if not fresh:
        return
    taken = _existing_starts(connection, pipeline, fresh)
    bulk_sql.insert_values(
        connection, tables.receipt, _COLUMNS, [row for position, row in fresh.items() if position not in taken]
    )
    for row in [*(fresh[position] for position in taken & fresh.keys()), *replaced]:
        named = [dict(zip(_COLUMNS, row, strict=True))]
        bulk_sql.upsert(connection, tables.receipt, named, added=tables.TOTALS, grown=("range_end", "at"))


def merge_into_rows(connection: Connection, pipeline: str, receipts: Sequence[tuple[RangeReceipt, int]]) -> None:
    """Store range receipts, merged with the rows of the table ``receipt`` that touch or overlap them.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param receipts: pairs of a range receipt and the low watermark of its partition and generation; rows that begin at
        or after the low watermark are not changed
    """
    if not receipts:
        return
    before: dict[tuple[int, str], set[RangeReceipt]] = {}
    for row in _look_up(connection, _touching_rows(connection.dialect.name), _query_rows(pipeline, receipts)):
        item = from_row(row)
        before.setdefault((item.generation, item.partition), set()).add(item)
    fresh: dict[tuple[int, str], list[RangeReceipt]] = {}
    for item, _ in receipts:
        fresh.setdefault((item.generation, item.partition), []).append(item)
    changed: list[RangeReceipt] = []
    absorbed: list[tuple[int, str, int]] = []
    for generation, items in fresh.items():
        old = before.get(generation, set())
        merged = merge_receipts([*old, *items])
        changed += [item for item in merged if item not in old]
        starts = {item.range.start for item in merged}
        absorbed += [(*generation, item.range.start) for item in old if item.range.start not in starts]
    _delete(connection, pipeline, [(*generation, start, start) for *generation, start in absorbed])
    bulk_sql.upsert(connection, tables.receipt, [_row(pipeline, item) for item in changed])


def compact(connection: Connection, pipeline: str, ranges: Iterable[RowRange], *, dry_run: bool = False) -> int:
    """Merge the rows of the table ``receipt`` that touch or overlap each other.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param ranges: the rows to merge; the row before each of these intervals is included
    :param dry_run: whether to only count, and change nothing
    :return: the decrease in the number of rows
    """
    merged: list[RangeReceipt] = []
    removed: list[tuple[Any, ...]] = []
    fewer = 0
    for row_range in ranges:
        for row in connection.execute(_touching_groups(pipeline, row_range)).mappings():
            item = from_row({**row, "generation": row_range.generation, "partition": row_range.partition})
            merged.append(item)
            last = min(item.range.end, row_range.below - 1)
            removed.append((row_range.generation, row_range.partition, item.range.start + 1, last))
            fewer += row["rows"] - 1
    if dry_run:
        return fewer
    _delete(connection, pipeline, removed)
    bulk_sql.upsert(connection, tables.receipt, [_row(pipeline, item) for item in merged])
    return fewer


def merge_batches(batches: Iterable[Batch]) -> list[RangeReceipt]:
    """Return the range receipts of resolved batches; adjacent batches of one partition and generation share one."""
    found: list[RangeReceipt] = []
    ordered = sorted(batches, key=lambda batch: (batch.key.generation, batch.key.partition, batch.range.start))
    group: list[Batch] = []
    end = 0
    for batch in ordered:
        first = group[0].key if group else None
        same_partition = first is not None and (first.generation, first.partition) == (
            batch.key.generation,
            batch.key.partition,
        )
        if same_partition and batch.range.start <= end:
            group.append(batch)
            end = max(end, batch.range.end)
            continue
        if group:
            found.append(_sum(group, end))
        group, end = [batch], batch.range.end
    return [*found, _sum(group, end)] if group else found


def _totals_of(batch: Batch) -> tuple[Any, ...]:
    """Return the values of the columns :data:`.tables.TOTALS` and ``at`` of the table ``receipt`` for a single batch.

    The numbers of batches are 1 and 0, such as ``batches`` 1 and ``rejected`` 0. If the batch has no receipt, the
    numbers of records are 0, and ``at``, the time at which the receipt was claimed, is None.
    """
    state, receipt = batch.state, batch.receipt
    of_batch = (1, int(state is BatchState.REJECTED), int(state is BatchState.SKIPPED), int(state is BatchState.SENT))
    if receipt is None:
        return (0, 0, 0, 0, *of_batch, None)
    counts = receipt.counts
    return (counts.read, counts.delivered, counts.filtered, counts.dead_lettered, *of_batch, receipt.at)


def from_row(row: Any) -> RangeReceipt:
    """Return the range receipt that a row of the table ``receipt`` stores."""
    return RangeReceipt(
        row["generation"],
        row["partition"],
        Range(row["range_start"], row["range_end"]),
        Counts(row["read"], row["delivered"], row["filtered"], row["dead_lettered"]),
        row["batches"],
        row["rejected"],
        row["skipped"],
        row["sent"],
        row["at"],
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
        "at": item.at,
    }


def _sum(group: Sequence[Batch], end: int) -> RangeReceipt:
    """Return the sum of the receipts of adjacent batches as one range receipt.

    The result is that of :func:`merge_receipts`, computed faster in one pass.

    :param group: batches of one partition and generation, in order
    :param end: end of their common range
    """
    first = group[0]
    receipts = [batch.receipt for batch in group if batch.receipt is not None]
    counts = [receipt.counts for receipt in receipts]
    states = [batch.state for batch in group]
    return RangeReceipt(
        first.key.generation,
        first.key.partition,
        Range(first.range.start, end),
        Counts(
            sum([c.read for c in counts]),
            sum([c.delivered for c in counts]),
            sum([c.filtered for c in counts]),
            sum([c.dead_lettered for c in counts]),
        ),
        len(group),
        states.count(BatchState.REJECTED),
        states.count(BatchState.SKIPPED),
        states.count(BatchState.SENT),
        max([receipt.at for receipt in receipts], default=None),
    )


def _delete(connection: Connection, pipeline: str, ranges: Iterable[tuple[Any, ...]]) -> None:
    names = (*_PLACE, bulk_sql.FIRST, bulk_sql.LAST)
    rows = [dict(zip(names, (pipeline, *span), strict=True)) for span in ranges]
    bulk_sql.delete_runs(connection, tables.receipt, "range_start", rows)


def _existing_starts(
    connection: Connection, pipeline: str, positions: Iterable[tuple[int, str, int]]
) -> set[tuple[int, str, int]]:
    """Return the positions between the lowest and highest given ones of a partition at which a row begins already.

    The rows are those of the table ``receipt``. The result may contain positions that are not among the given ones.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param positions: the given positions, as triples of generation, partition and start position
    """
    ranges: dict[tuple[int, str], tuple[int, int]] = {}
    for generation, partition, start in positions:
        first, last = ranges.get((generation, partition), (start, start))
        ranges[generation, partition] = (min(first, start), max(last, start))
    names = (*_PLACE, bulk_sql.FIRST, bulk_sql.LAST)
    rows = [dict(zip(names, (pipeline, *group, *span), strict=True)) for group, span in ranges.items()]
    found = _look_up(connection, _rows_beginning_in(connection.dialect.name), rows)
    return {(row["generation"], row["partition"], row["range_start"]) for row in found}


def _look_up(connection: Connection, query: sa.Select[Any], rows: bulk_sql.Rows) -> sa.MappingResult:
    return connection.execute(query, {"given": bulk_sql.as_json(rows)}).mappings()


def _query_rows(pipeline: str, receipts: Sequence[tuple[RangeReceipt, int]]) -> list[dict[str, Any]]:
    return [
        {
            "pipeline": pipeline,
            "generation": item.generation,
            "partition": item.partition,
            "range_start": item.range.start,
            "range_end": item.range.end,
            "below": below,
        }
        for item, below in receipts
    ]


@lru_cache
def _touching_rows(dialect: str) -> sa.Select[Any]:
    """Build the query for the rows of the table ``receipt`` that touch or overlap the ranges in its parameter.

    The parameter is that of :func:`.bulk_sql.given_rows`: ranges, each with a position ``below``; rows that begin at or
    after this position are left out. For each range, the query returns the nearest row that begins at or before its
    start, and the rows that begin inside or at its end.

    :param dialect: name of the SQL dialect, ``postgresql`` or ``sqlite``
    """
    names = (*_PLACE, "range_start", "range_end")
    outer = bulk_sql.given_rows(dialect, tables.receipt, names, numbers=("below",)).alias("wanted")
    other = tables.receipt.alias("other")
    nearest = (
        sa.select(sa.func.max(other.c.range_start))
        .where(*(other.c[name] == outer.c[name] for name in _PLACE), other.c.range_start <= outer.c.range_start)
        .correlate(outer)
        .scalar_subquery()
    )
    return bulk_sql.look_up_each(
        dialect,
        outer,
        tables.receipt,
        *(_R[name] == outer.c[name] for name in _PLACE),
        _R.range_start >= sa.func.coalesce(nearest, outer.c.range_start),
        _R.range_start <= outer.c.range_end,
        _R.range_start < outer.c.below,
    )


@lru_cache
def _rows_beginning_in(dialect: str) -> sa.Select[Any]:
    """Build the query for the rows of the table ``receipt`` that begin within the intervals in its parameter.

    The parameter is that of :func:`.bulk_sql.given_rows`: the first and last position of each interval, both inclusive,
    under the keys :data:`.bulk_sql.FIRST` and :data:`.bulk_sql.LAST`.

    :param dialect: name of the SQL dialect, ``postgresql`` or ``sqlite``
    """
    outer = bulk_sql.given_rows(dialect, tables.receipt, _PLACE, numbers=(bulk_sql.FIRST, bulk_sql.LAST))
    return bulk_sql.look_up_each(
        dialect,
        outer,
        tables.receipt,
        *(_R[name] == outer.c[name] for name in _PLACE),
        _R.range_start.between(outer.c[bulk_sql.FIRST], outer.c[bulk_sql.LAST]),
    )


def _touching_groups(pipeline: str, row_range: RowRange) -> sa.Select[Any]:
    """Build a query that sums up each group of two or more rows that touch or overlap each other.

    :param pipeline: name of the pipeline
    :param row_range: the rows to consider; the row before them is included
    """
    of_generation = sa.and_(
        _R.pipeline == pipeline, _R.generation == row_range.generation, _R.partition == row_range.partition
    )
    nearest = (
        sa.select(sa.func.max(_R.range_start)).where(of_generation, _R.range_start < row_range.start).scalar_subquery()
    )
    reach = sa.func.max(_R.range_end).over(order_by=_R.range_start, rows=(None, -1))
    rows = (
        sa.select(tables.receipt, reach.label("reach"))
        .where(
            of_generation,
            _R.range_start >= sa.func.coalesce(nearest, row_range.start),
            _R.range_start < row_range.below,
        )
        .subquery("rows")
    ).c
    number = sa.func.sum(sa.case((rows.reach >= rows.range_start, 0), else_=1)).over(order_by=rows.range_start)
    found = sa.select(*rows, number.label("island")).subquery("found").c
    sums: list[sa.ColumnElement[Any]] = [
        sa.cast(sa.func.sum(found[name]), sa.BigInteger).label(name) for name in tables.TOTALS
    ]
    return (
        sa.select(
            sa.func.min(found.range_start).label("range_start"),
            sa.func.max(found.range_end).label("range_end"),
            *sums,
            sa.func.max(found.at).label("at"),
            sa.func.count().label("rows"),
        )
        .group_by(found.island)
        .having(sa.func.count() > 1)
    )
