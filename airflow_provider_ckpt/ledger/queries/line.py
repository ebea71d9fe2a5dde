"""Query the number line of a partition: the state of every range of its positions, in a bounded number of pieces.

The page in Airflow draws the line. If there are many batches beyond the checkpoint, they are grouped by *buckets*,
equal parts of the line. If there are many range receipts, they are only sampled, since there may be millions: the first
and last position of each bucket are read, and an index finds the receipts of batches that were not delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import START, Range, subtract
from airflow_provider_ckpt.ledger.queries import line_batches, schema_versions
from airflow_provider_ckpt.ledger.queries.line_batches import MAX_GAPS, BatchPiece, BlockedLine, of_generation
from airflow_provider_ckpt.ledger.queries.schema_versions import ShownVersion
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.receipts import from_row

MAX_PIECES = 1000
"""Number of batches above which they are grouped, and number of range receipts above which they are sampled."""

MAX_DEAD_LETTERS = 500
"""Maximum number of entries of the dead letter index in one number line."""

_MARGIN = 20
"""Divisor for the margin: the default window begins before the low watermark, by 1/20 of the distance to its end."""

_P, _B, _R, _D = tables.partition.c, tables.batch.c, tables.receipt.c, tables.dead_letter.c


@dataclass(frozen=True, slots=True)
class DeadLetterPiece:
    """Entry of the dead letter index, reduced to the values that a number line shows.

    :param key: the batch
    :param range: range of positions that contains the records of these dead letters, and perhaps other records
    :param records: number of dead letters
    :param error_type: error type of all of them
    :param state: state of all of them, such as ``parked``
    """

    key: BatchKey
    range: Range
    records: int
    error_type: str
    state: str


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """Number line of a partition.

    :param partition: id of the partition
    :param generation: the partition's generation
    :param base: first position of the generation
    :param low_watermark: position below which receipts are merged
    :param committed: the checkpoint
    :param planned_end: end of the plan
    :param bound: end of the source at the last planning; None if the source reported none
    :param ends_at: end of a side partition; None for a source partition
    :param window: the range of positions that the line describes
    :param batches: batches beyond the checkpoint, singly or in groups
    :param receipts: range receipts in the window; if there are more than :data:`MAX_PIECES`, only those of batches that
        were rejected, skipped, or sent without a known receipt
    :param sampled: if there are more than :data:`MAX_PIECES` range receipts, for each bucket the range from the first
        to the last receipt that begins in it; else empty
    :param gaps: ranges before the end of the plan that no batch or receipt covers; if receipts are sampled, only those
        beyond the checkpoint
    :param dead_letters: dead letters of this generation, at most :data:`MAX_DEAD_LETTERS` entries
    :param dead_letters_left_out: whether there are more dead letters
    :param blocked: the first unresolved batch, with the number of resolved batches beyond it; None if all are resolved
    :param grouped: whether batches are grouped or receipts are sampled
    :param schema_versions: schema versions that begin in the window or at its end, by position, at most
        :data:`.schema_versions.MAX_SHOWN`
    :param schema_versions_left_out: whether there are more schema versions, at smaller positions
    """

    partition: str
    generation: int
    base: int
    low_watermark: int
    committed: int
    planned_end: int
    bound: int | None
    ends_at: int | None
    window: Range
    batches: list[BatchPiece]
    receipts: list[RangeReceipt]
    sampled: list[Range] = field(default_factory=list)
    gaps: list[Range] = field(default_factory=list)
    dead_letters: list[DeadLetterPiece] = field(default_factory=list)
    dead_letters_left_out: bool = False
    blocked: BlockedLine | None = None
    grouped: bool = False
    schema_versions: list[ShownVersion] = field(default_factory=list)
    schema_versions_left_out: bool = False


def lines(
    connection: Connection,
    pipeline: str,
    *,
    partitions: Sequence[str] | None = None,
    after: str | None = None,
    limit: int = 20,
    window: Range | None = None,
    buckets: int = 400,
) -> list[PartitionLine]:
    """Return the number lines of some partitions of a pipeline, ordered by id.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param partitions: ids of the partitions; None for all
    :param after: only partitions whose id is greater, for the next page; None for all
    :param limit: maximum number of partitions
    :param window: the range of positions to describe; None for the range from shortly before the low watermark to the
        end of the plan, or to the known end of the source if that is later
    :param buckets: number of buckets into which the window is divided if there are many batches or receipts
    """
    query = sa.select(tables.partition).where(_P.pipeline == pipeline).order_by(_P.partition).limit(limit)
    if partitions is not None:
        query = query.where(_P.partition.in_(partitions))
    if after is not None:
        query = query.where(_P.partition > after)
    rows = connection.execute(query).mappings().all()
    return [_line(connection, row, window or _default_window(connection, row), buckets) for row in rows]


def _line(connection: Connection, row: sa.RowMapping, window: Range, buckets: int) -> PartitionLine:
    width = max(1, -(-(window.end - window.start) // buckets))
    groups = line_batches.batch_groups(connection, row, window, width)
    inside = [group for group in groups if group.bucket is not None]
    is_grouped = sum(group.batches for group in inside) > MAX_PIECES
    is_sampled = _has_many_receipts(connection, row, window)
    receipts = _receipts(connection, row, window, exceptions=is_sampled)
    sampled = _sample(connection, row, window, width) if is_sampled else []
    dead_letters = _dead_letters(connection, row, window)
    versions, has_more_versions = schema_versions.in_window(connection, row["pipeline"], row["partition"], window)
    return PartitionLine(
        row["partition"],
        row["generation"],
        row["base"],
        row["low"],
        row["committed"],
        row["planned_end"],
        row["bound"],
        row["side_end"],
        window,
        line_batches.grouped_pieces(connection, row, inside)
        if is_grouped
        else line_batches.single_pieces(connection, row, window),
        receipts,
        sampled,
        _gaps(connection, row, window, groups, None if is_sampled else receipts),
        dead_letters[:MAX_DEAD_LETTERS],
        len(dead_letters) > MAX_DEAD_LETTERS,
        line_batches.blocked_line(connection, row, groups),
        is_grouped or is_sampled,
        versions,
        has_more_versions,
    )


def _default_window(connection: Connection, row: sa.RowMapping) -> Range:
    """Return the range from shortly before the low watermark to the end of the plan, or to the source's known end.

    The later one of these ends is chosen.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    """
    end = max(position for position in (row["planned_end"], row["bound"], row["committed"]) if position is not None)
    start = row["low"] if row["low"] > START else _first_end(connection, row)
    if start is None or start >= end:
        start = end - 1 if end > START else START
    margin = max(1, (end - start) // _MARGIN)
    first = max(start - margin, row["base"], START + 1)
    return Range(first, max(end, first + 1))


def _first_end(connection: Connection, row: sa.RowMapping) -> int | None:
    """Return the end of a partition's first receipt or batch; the line begins there if the low watermark is ``start``.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :return: the smaller end of the first receipt and the first batch; None if there is neither
    """
    ends = [
        connection.execute(
            sa.select(c.range_end).where(of_generation(c, row)).order_by(c.range_start).limit(1)
        ).scalar_one_or_none()
        for c in (_R, _B)
    ]
    return min((end for end in ends if end is not None), default=None)


def _receipts_in(row: sa.RowMapping, window: Range) -> sa.ColumnElement[bool]:
    """Return the SQL condition that selects the receipts that begin in a window, and the last one that begins before.

    :param row: the partition's row in the table ``partition``
    :param window: range of positions that the number line shows
    """
    before = sa.select(sa.func.max(_R.range_start)).where(of_generation(_R, row), _R.range_start <= window.start)
    first = sa.func.coalesce(before.scalar_subquery(), window.start)
    return sa.and_(of_generation(_R, row), _R.range_start >= first, _R.range_start < window.end)


def _has_many_receipts(connection: Connection, row: sa.RowMapping, window: Range) -> bool:
    """Return whether a window contains more than :data:`MAX_PIECES` receipts; only the index is read."""
    query = sa.select(_R.range_start).where(_receipts_in(row, window)).order_by(_R.range_start)
    return connection.execute(query.offset(MAX_PIECES).limit(1)).one_or_none() is not None


def _receipts(connection: Connection, row: sa.RowMapping, window: Range, *, exceptions: bool) -> list[RangeReceipt]:
    """Return the range receipts of a partition in a window, in order, at most :data:`MAX_PIECES`.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param window: range of positions that the number line shows
    :param exceptions: whether to return only receipts of batches that were rejected, skipped, or sent without a known
        receipt
    """
    query = (
        sa.select(tables.receipt)
        .where(_receipts_in(row, window), _R.range_end > window.start)
        .order_by(_R.range_start)
        .limit(MAX_PIECES)
    )
    if exceptions:
        query = query.where(sa.text(f"({tables.NOT_DELIVERED})"))
    return [from_row(item) for item in connection.execute(query).mappings()]


def _sample(connection: Connection, row: sa.RowMapping, window: Range, width: int) -> list[Range]:
    """Return for each bucket of a window the range from the first to the last receipt that begins in the bucket.

    Buckets without a receipt are left out.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param window: range of positions that the number line shows
    :param width: number of positions in a bucket
    """
    start, size, last_start = (sa.literal(n, sa.BigInteger()) for n in (window.start, width, window.end - width))
    series = sa.select(start.label("start")).cte("bucket", recursive=True)
    series = series.union_all(sa.select(series.c.start + size).where(series.c.start < last_start))
    end = series.c.start + size
    inside = sa.and_(of_generation(_R, row), _R.range_start >= series.c.start, _R.range_start < end)

    def nearest(column: sa.ColumnElement[int], order: sa.ColumnElement[Any]) -> sa.ScalarSelect[int]:
        return sa.select(column).where(inside).order_by(order).limit(1).correlate(series).scalar_subquery()

    first, last = nearest(_R.range_start, _R.range_start), nearest(_R.range_end, _R.range_start.desc())
    rows: list[Any] = list(connection.execute(sa.select(first, last).select_from(series)))
    return sorted(Range(a, b) for a, b in rows if a is not None)


def _dead_letters(connection: Connection, row: sa.RowMapping, window: Range) -> list[DeadLetterPiece]:
    query = (
        sa.select(_D.seq, _D.range_start, _D.range_end, _D.records, _D.error_type, _D.state)
        .where(of_generation(_D, row), _D.range_start < window.end, _D.range_end > window.start)
        .order_by(_D.seq, _D.error_type, _D.ordinal)
        .limit(MAX_DEAD_LETTERS + 1)
    )
    return [
        DeadLetterPiece(
            BatchKey(row["generation"], row["partition"], item.seq),
            Range(item.range_start, item.range_end),
            item.records,
            item.error_type,
            item.state,
        )
        for item in connection.execute(query)
    ]


def _gaps(
    connection: Connection,
    row: sa.RowMapping,
    window: Range,
    groups: Sequence[Any],
    receipts: Iterable[RangeReceipt] | None,
) -> list[Range]:
    """Return the ranges in a window before the end of the plan that no batch or receipt covers, at most 100.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param window: range of positions that the number line shows
    :param groups: the groups of all batches of the partition, see :func:`.line_batches.batch_groups`
    :param receipts: all receipts in the window; None if they are sampled, so that only ranges beyond the checkpoint are
        returned
    """
    committed = row["committed"]
    found = line_batches.gaps_between(connection, row) if any(group.gaps for group in groups) else []
    end = max((group.end for group in groups), default=committed)
    if max(end, committed) < row["planned_end"]:
        found.append(Range(max(end, committed), row["planned_end"]))
    first, passed_end = max(window.start, row["base"]), min(window.end, committed)
    if receipts is not None and first < passed_end:
        covered = [item.range for item in receipts]
        if any(group.passed for group in groups):
            covered += line_batches.passed_ranges(connection, row)
        found += subtract(Range(first, passed_end), covered)
    return sorted(gap for gap in found if gap.overlaps(window))[:MAX_GAPS]
