"""Query a partition's batches for its number line: in groups or one by one, the blocking batch, and gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import BLOCKING, RESOLVED, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import START, Range
from airflow_provider_ckpt.ledger.store import tables

MAX_GAPS = 100
"""Maximum number of gaps in one number line; further ones are left out."""

_B = tables.batch.c
_NO_SUPERSEDED = _B.state != BatchState.SUPERSEDED.value


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """Piece of a number line: one batch, or several batches in the same state.

    :param state: the state of the batches
    :param range: range from the first position of the batches to the last
    :param batches: number of batches
    :param key: key of the first batch
    :param attempts: largest number of attempts of one of the batches
    :param error_type: type of the newest error of a single batch; None for several batches, or without an error
    """

    state: BatchState
    range: Range
    batches: int
    key: BatchKey
    attempts: int
    error_type: str | None


@dataclass(frozen=True, slots=True)
class BlockedLine:
    """The first unresolved batch of a partition, which blocks the checkpoint, and the resolved batches beyond it.

    :param key: the unresolved batch
    :param state: the state of the unresolved batch
    :param batches: number of resolved batches beyond the checkpoint
    :param positions: number of positions that the resolved batches cover
    """

    key: BatchKey
    state: BatchState
    batches: int
    positions: int


def of_generation(c: Any, row: sa.RowMapping) -> sa.ColumnElement[bool]:
    """Return the SQL condition for the rows of a partition's present generation.

    :param c: columns of a table with pipeline, generation and partition
    :param row: the partition's row in the table ``partition``
    """
    return sa.and_(c.pipeline == row["pipeline"], c.generation == row["generation"], c.partition == row["partition"])


def _overlaps(window: Range) -> sa.ColumnElement[bool]:
    """Return the SQL condition for the batches that overlap a window."""
    return sa.and_(_B.range_start < window.end, _B.range_end > window.start)


def batch_groups(connection: Connection, row: sa.RowMapping, window: Range, width: int) -> Sequence[Any]:
    """Return the batches of a partition in groups, by one pass over all of them; superseded batches are left out.

    A group contains the batches of one state that begin in one bucket of the window. Batches that begin before the
    window and reach into it are in the first bucket. The batches of one state outside the window form one group. A
    group has the columns ``state``, ``bucket`` (its number from 0; None outside the window), ``start`` and ``end``
    (first position of its batches, and first position after them), ``batches`` (number of batches), ``seq`` (the lowest
    seq), ``attempts`` (the highest number of attempts of one batch), ``positions`` (number of positions that its
    batches beyond the checkpoint cover), and the numbers of its batches that

    - end at or before the checkpoint (``passed``)
    - begin at or after the checkpoint (``beyond``)
    - follow a gap beyond the checkpoint (``gaps``)

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param window: range of positions that the number line shows
    :param width: number of positions in a bucket
    """
    before = sa.func.lag(_B.range_end).over(order_by=_B.range_start).label("before")
    batches = sa.select(_B.seq, _B.range_start, _B.range_end, _B.state, _B.attempts, before)
    ordered = batches.where(of_generation(_B, row), _NO_SUPERSEDED).subquery()
    c, committed = ordered.c, row["committed"]
    offset = sa.case((c.range_start > window.start, c.range_start - window.start), else_=0)
    is_inside = sa.and_(c.range_start < window.end, c.range_end > window.start)
    bucket = sa.case((is_inside, offset // width)).label("bucket")
    is_beyond = c.range_start >= committed
    query = sa.select(
        c.state,
        bucket,
        sa.func.min(c.range_start).label("start"),
        sa.func.max(c.range_end).label("end"),
        sa.func.count().label("batches"),
        sa.func.min(c.seq).label("seq"),
        sa.func.max(c.attempts).label("attempts"),
        sa.func.count().filter(c.range_end <= committed).label("passed"),
        sa.func.count().filter(is_beyond).label("beyond"),
        sa.func.sum(sa.case((c.range_start > START, c.range_end - c.range_start))).filter(is_beyond).label("positions"),
        sa.func.count().filter(_is_behind_a_gap(c, committed)).label("gaps"),
    )
    return connection.execute(query.group_by(c.state, bucket)).all()


def _is_behind_a_gap(c: Any, committed: int) -> sa.ColumnElement[bool]:
    """Return the SQL condition for batches beyond the checkpoint that follow a gap.

    :param c: columns of the batches; ``before`` is the end of the previous batch
    :param committed: the checkpoint
    """
    return sa.and_(c.range_start > committed, sa.or_(c.before.is_(None), c.range_start > c.before))


def grouped_pieces(connection: Connection, row: sa.RowMapping, groups: Sequence[Any]) -> list[BatchPiece]:
    """Return a piece for each group of batches, in order.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param groups: groups of :func:`batch_groups` that lie inside the window
    """
    alone = [group.seq for group in groups if group.batches == 1 and group.attempts]
    with_error = sa.select(_B.seq, _B.error).where(of_generation(_B, row), _B.seq.in_(alone), _B.error.is_not(None))
    errors: dict[int, Any] = dict(connection.execute(with_error).tuples().all()) if alone else {}
    return [
        _piece(row, group, group.batches, errors.get(group.seq))
        for group in sorted(groups, key=lambda group: (group.start, group.seq))
    ]


def single_pieces(connection: Connection, row: sa.RowMapping, window: Range) -> list[BatchPiece]:
    """Return a piece for each batch that overlaps a window, in order; superseded batches are left out.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param window: range of positions that the number line shows
    """
    columns = (_B.seq, _B.range_start.label("start"), _B.range_end.label("end"), _B.state, _B.attempts, _B.error)
    query = sa.select(*columns).where(of_generation(_B, row), _NO_SUPERSEDED, _overlaps(window))
    found = connection.execute(query.order_by(_B.range_start, _B.seq))
    return [_piece(row, item, 1, item.error) for item in found]


def _piece(row: sa.RowMapping, found: Any, batches: int, error: Mapping[str, Any] | None) -> BatchPiece:
    """Return one piece of a partition's number line.

    :param row: the partition's row in the table ``partition``
    :param found: row with state, bounds, first seq and largest number of attempts of the batches
    :param batches: number of batches
    :param error: error of the batch if it is a single one; None if there is none
    """
    return BatchPiece(
        BatchState(found.state),
        Range(found.start, found.end),
        batches,
        BatchKey(row["generation"], row["partition"], found.seq),
        found.attempts,
        error["type"] if error else None,
    )


def passed_ranges(connection: Connection, row: sa.RowMapping) -> list[Range]:
    """Return the ranges of batches before the checkpoint that were sent at most once and whose receipt is not known.

    All other batches before the checkpoint are no longer stored one by one.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    """
    query = sa.select(_B.range_start, _B.range_end).where(of_generation(_B, row), _B.range_end <= row["committed"])
    return [Range(*item) for item in connection.execute(query)]


def gaps_between(connection: Connection, row: sa.RowMapping) -> list[Range]:
    """Return the gaps between the batches beyond the checkpoint, of more than 100 the first 100.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    """
    before = sa.func.lag(_B.range_end).over(order_by=_B.range_start).label("before")
    ordered = sa.select(_B.range_start, before).where(of_generation(_B, row), _NO_SUPERSEDED).subquery()
    c, committed = ordered.c, row["committed"]
    previous = sa.case((c.before > committed, c.before), else_=committed)
    query = sa.select(previous, c.range_start).where(_is_behind_a_gap(c, committed)).order_by(c.range_start)
    return [Range(*item) for item in connection.execute(query.limit(MAX_GAPS))]


def blocked_line(connection: Connection, row: sa.RowMapping, groups: Sequence[Any]) -> BlockedLine | None:
    """Return the unresolved batch that blocks a partition's checkpoint, and how many resolved batches lie beyond it.

    The result is for display; ``core/checkpoint.py`` decides where the checkpoint is.

    :param connection: connection whose transaction reads one snapshot
    :param row: the partition's row in the table ``partition``
    :param groups: the groups of all batches of the partition
    :return: None if all batches are resolved
    """
    blocking = [state.value for state in BLOCKING]
    if not any(group.state in blocking for group in groups):
        return None
    query = sa.select(_B.seq, _B.state).where(of_generation(_B, row), _B.state.in_(blocking))
    seq, state = connection.execute(query.order_by(_B.range_start).limit(1)).one()
    resolved = [group for group in groups if BatchState(group.state) in RESOLVED]
    positions = sum(int(group.positions or 0) for group in resolved)
    key = BatchKey(row["generation"], row["partition"], seq)
    return BlockedLine(key, BatchState(state), sum(group.beyond for group in resolved), positions)
