"""Query of the number line of a partition: what became of every range, as a bounded number of pieces.

Batches beyond the checkpoint are grouped by buckets of the line if there are many. Range receipts are only sampled
then, since there may be millions: each bucket has its first and last position, and exceptions are found by an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import BLOCKING, RESOLVED, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import START, Range, subtract
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.receipts import from_row

MAX_PIECES = 1000
"""Number of batches, and of range receipts, up to which each of them is a piece of its own."""

MAX_DEAD_LETTERS = 500
"""Maximum number of entries of the dead letter index in an answer."""

_MAX_GAPS = 100
_MARGIN = 20
"""The default window begins before the low watermark by one part in this many of its length."""

_P, _B, _R, _D = tables.partition.c, tables.batch.c, tables.receipt.c, tables.dead_letter.c
_NO_SUPERSEDED = _B.state != BatchState.SUPERSEDED.value


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """One batch of a partition, or several in one state.

    :param state: the state of these batches
    :param range: from the first position of the batches to the last
    :param batches: number of batches
    :param key: key of the first batch
    :param attempts: largest number of attempts of one of the batches
    :param error_type: error type of the batch if the piece is a single one; None for several, or without an error
    """

    state: BatchState
    range: Range
    batches: int
    key: BatchKey
    attempts: int
    error_type: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterPiece:
    """Entry of the dead letter index, reduced to the fields that a number line shows."""

    key: BatchKey
    range: Range
    records: int
    error_type: str
    state: str


@dataclass(frozen=True, slots=True)
class BlockedLine:
    """The first unresolved batch of a partition, and the resolved batches beyond it.

    :param key: the unresolved batch
    :param state: its state
    :param batches: number of resolved batches beyond the checkpoint
    :param positions: number of positions that these cover
    """

    key: BatchKey
    state: BatchState
    batches: int
    positions: int


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """Number line of a partition.

    :param partition: id of the partition
    :param generation: its generation
    :param base: first position of the generation
    :param low_watermark: position below which receipts are merged
    :param committed: the checkpoint
    :param planned_end: end of what is planned
    :param bound: end of the source at the last planning; None if the source reported none
    :param ends_at: end of a side partition; None for a source partition
    :param window: the range that is described
    :param batches: batches beyond the checkpoint
    :param receipts: range receipts; if there were too many, only those of batches that were not simply delivered
    :param sampled: if there were too many receipts, the ranges of all receipts that begin in one bucket, else empty
    :param gaps: ranges that were planned or passed, and that no batch or receipt covers; beyond the checkpoint only if
        receipts were sampled
    :param dead_letters: dead letters of this generation, at most :data:`MAX_DEAD_LETTERS`
    :param dead_letters_left_out: whether there are more
    :param blocked: the first unresolved batch with the resolved ones beyond it; None if all are resolved
    :param grouped: whether pieces stand for more than one batch
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

    :param connection: connection on a snapshot
    :param pipeline: name of the pipeline
    :param partitions: ids of the partitions; None for all
    :param after: only partitions whose id is greater; None for all
    :param limit: maximum number of partitions
    :param window: the range to describe; None for all from shortly before the low watermark on
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
    batches, total = _batch_pieces(connection, row, window, width)
    receipts = _receipts(connection, row, window)
    sampled: list[Range] = []
    if len(receipts) > MAX_PIECES:
        sampled = _sample(connection, row, window, width)
        receipts = _receipts(connection, row, window, exceptions=True)[:MAX_PIECES]
    dead_letters = _dead_letters(connection, row, window)
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
        batches,
        receipts,
        sampled,
        _gaps(connection, row, window, None if sampled else receipts),
        dead_letters[:MAX_DEAD_LETTERS],
        len(dead_letters) > MAX_DEAD_LETTERS,
        _blocked(connection, row),
        bool(sampled) or total > len(batches),
    )


def _default_window(connection: Connection, row: sa.RowMapping) -> Range:
    """Return the range from shortly before the low watermark to the end of what is known of the source."""
    end = max(position for position in (row["planned_end"], row["bound"], row["committed"]) if position is not None)
    start = row["low"] if row["low"] > START else _first_end(connection, row)
    if start is None or start >= end:
        start = end - 1 if end > START else START
    margin = max(1, (end - start) // _MARGIN)
    first = max(start - margin, row["base"], START + 1)
    return Range(first, max(end, first + 1))


def _first_end(connection: Connection, row: sa.RowMapping) -> int | None:
    """Return the smallest end of a range of a partition that begins at the position before all others."""
    ends = [
        connection.execute(
            sa.select(c.range_end).where(_of(c, row)).order_by(c.range_start).limit(1)
        ).scalar_one_or_none()
        for c in (_R, _B)
    ]
    return min((end for end in ends if end is not None), default=None)


def _of(c: Any, row: sa.RowMapping) -> sa.ColumnElement[bool]:
    """Restrict a table to the present generation of a partition."""
    return sa.and_(c.pipeline == row["pipeline"], c.generation == row["generation"], c.partition == row["partition"])


def _batch_pieces(
    connection: Connection, row: sa.RowMapping, window: Range, width: int
) -> tuple[list[BatchPiece], int]:
    """Return the batches of a partition in a window, grouped by state and bucket if there are many, and their number.

    :param connection: connection on a snapshot
    :param row: the partition's row
    :param window: the window
    :param width: number of positions of a bucket
    """
    found = (
        sa.select(
            _B.seq,
            _B.range_start,
            _B.range_end,
            _B.state,
            _B.attempts,
            sa.func.count().over().label("total"),
            sa.case((_B.range_start > window.start, _B.range_start - window.start), else_=0).label("offset"),
        )
        .where(_of(_B, row), _NO_SUPERSEDED, _B.range_start < window.end, _B.range_end > window.start)
        .cte("found")
    )
    c = found.c
    group = sa.case((c.total <= MAX_PIECES, c.seq), else_=c.offset // width)
    grouped = (
        sa.select(
            c.state,
            sa.func.min(c.range_start).label("start"),
            sa.func.max(c.range_end).label("end"),
            sa.func.count().label("batches"),
            sa.func.min(c.seq).label("seq"),
            sa.func.max(c.attempts).label("attempts"),
            sa.func.max(c.total).label("total"),
        )
        .group_by(c.state, group)
        .cte("grouped")
    )
    g = grouped.c
    first = sa.and_(_of(_B, row), _B.seq == g.seq)
    query = sa.select(*g, _B.error).select_from(grouped.join(tables.batch, first)).order_by(g.start, g.seq)
    rows = connection.execute(query).all()
    pieces = [
        BatchPiece(
            BatchState(item.state),
            Range(item.start, item.end),
            item.batches,
            BatchKey(row["generation"], row["partition"], item.seq),
            item.attempts,
            item.error["type"] if item.error and item.batches == 1 else None,
        )
        for item in rows
    ]
    return pieces, max((item.total for item in rows), default=0)


def _receipts(
    connection: Connection, row: sa.RowMapping, window: Range, *, exceptions: bool = False
) -> list[RangeReceipt]:
    """Return the range receipts of a partition in a window, in order, at most one more than :data:`MAX_PIECES`.

    :param connection: connection on a snapshot
    :param row: the partition's row
    :param window: the window
    :param exceptions: only receipts of batches that were rejected, skipped, or sent without a known receipt
    """
    before = sa.select(sa.func.max(_R.range_start)).where(_of(_R, row), _R.range_start <= window.start)
    first = sa.func.coalesce(before.scalar_subquery(), window.start)
    query = (
        sa.select(tables.receipt)
        .where(_of(_R, row), _R.range_start >= first, _R.range_start < window.end, _R.range_end > window.start)
        .order_by(_R.range_start)
        .limit(MAX_PIECES + 1)
    )
    if exceptions:
        query = query.where(sa.text(f"({tables.NOT_DELIVERED})"))
    return [from_row(item) for item in connection.execute(query).mappings()]


def _sample(connection: Connection, row: sa.RowMapping, window: Range, width: int) -> list[Range]:
    """Return, for each bucket in which receipts begin, the range from the first of them to the end of the last."""
    start, size, last_start = (sa.literal(n, sa.BigInteger()) for n in (window.start, width, window.end - width))
    series = sa.select(start.label("start")).cte("bucket", recursive=True)
    series = series.union_all(sa.select(series.c.start + size).where(series.c.start < last_start))
    end = series.c.start + size
    inside = sa.and_(_of(_R, row), _R.range_start >= series.c.start, _R.range_start < end)

    def nearest(column: sa.ColumnElement[int], order: sa.ColumnElement[Any]) -> sa.ScalarSelect[int]:
        return sa.select(column).where(inside).order_by(order).limit(1).correlate(series).scalar_subquery()

    first, last = nearest(_R.range_start, _R.range_start), nearest(_R.range_end, _R.range_start.desc())
    rows: list[Any] = list(connection.execute(sa.select(first, last).select_from(series)))
    return sorted(Range(a, b) for a, b in rows if a is not None)


def _dead_letters(connection: Connection, row: sa.RowMapping, window: Range) -> list[DeadLetterPiece]:
    query = (
        sa.select(_D.seq, _D.range_start, _D.range_end, _D.records, _D.error_type, _D.state)
        .where(_of(_D, row), _D.range_start < window.end, _D.range_end > window.start)
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
    connection: Connection, row: sa.RowMapping, window: Range, receipts: Iterable[RangeReceipt] | None
) -> list[Range]:
    """Return the ranges in a window that were planned or passed and that nothing covers, at most 100.

    :param connection: connection on a snapshot
    :param row: the partition's row
    :param window: the window
    :param receipts: all receipts in the window; None if they are too many, so that only ranges beyond the checkpoint
        are returned
    """
    before = sa.func.lag(_B.range_end).over(order_by=_B.range_start)
    beyond = sa.and_(_of(_B, row), _NO_SUPERSEDED, _B.range_end > row["committed"])
    ordered = sa.select(_B.range_start, _B.range_end, before.label("before")).where(beyond).subquery()
    c = ordered.c
    previous = sa.func.coalesce(c.before, row["committed"])
    query = sa.select(previous, c.range_start).where(c.range_start > previous).order_by(c.range_start)
    found = [Range(*item) for item in connection.execute(query.limit(_MAX_GAPS))]
    last = connection.execute(sa.select(sa.func.max(_B.range_end)).where(beyond)).scalar_one()
    end = row["committed"] if last is None else last
    if end < row["planned_end"]:
        found.append(Range(end, row["planned_end"]))
    first, passed_end = max(window.start, row["base"]), min(window.end, row["committed"])
    if receipts is not None and first < passed_end:
        unconfirmed = sa.select(_B.range_start, _B.range_end).where(_of(_B, row), _B.range_end <= row["committed"])
        covered = [item.range for item in receipts]
        covered += [Range(*item) for item in connection.execute(unconfirmed)]
        found += subtract(Range(first, passed_end), covered)
    return sorted(gap for gap in found if gap.overlaps(window))[:_MAX_GAPS]


def _blocked(connection: Connection, row: sa.RowMapping) -> BlockedLine | None:
    first = connection.execute(
        sa.select(_B.seq, _B.state)
        .where(_of(_B, row), _B.state.in_([state.value for state in BLOCKING]))
        .order_by(_B.range_start)
        .limit(1)
    ).one_or_none()
    if first is None:
        return None
    resolved = _B.state.in_([state.value for state in RESOLVED])
    batches, positions = connection.execute(
        sa.select(sa.func.count(), sa.func.sum(_B.range_end - _B.range_start)).where(
            _of(_B, row), resolved, _B.range_start >= row["committed"]
        )
    ).one()
    key = BatchKey(row["generation"], row["partition"], first.seq)
    return BlockedLine(key, BatchState(first.state), batches, int(positions or 0))
