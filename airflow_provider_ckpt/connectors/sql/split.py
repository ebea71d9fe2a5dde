"""Split a range of a table into batches, by skipping rows along the cursor's index.

Rows of equal cursor value are in the same batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.source_protocol import PlannedBatch
from airflow_provider_ckpt.connectors.sql.source_table import SourceTable
from airflow_provider_ckpt.core.ranges import Range

if TYPE_CHECKING:
    import sqlalchemy as sa

AUTO_RECORDS = 50_000
"""Number of records in a batch if the pipeline sets none."""

_ONE_BATCH_RECORDS = 20_000
"""Greatest number of records that are planned as one batch; more are split into at least :data:`_MIN_BATCHES`."""

_MIN_BATCHES = 4
_MAX_BATCHES = 2000
"""Greatest number of batches of one plan; each costs a query or two."""


@dataclass(frozen=True, slots=True)
class Split:
    """Result of splitting a range.

    :param batches: the batches, in order
    :param more: whether rows of the range remain beyond the last batch
    """

    batches: Sequence[PlannedBatch]
    more: bool

    @property
    def records(self) -> int:
        """Expected number of records in the batches."""
        return sum(batch.records or 0 for batch in self.batches)


def batch_records(connection: sa.Connection, table: SourceTable, start: int, end: int) -> int:
    """Return the number of records that each batch of a range should have.

    :param connection: an open connection
    :param table: the table
    :param start: first position of the range
    :param end: position after the range
    """
    counted = table.count(connection, start, end, _MIN_BATCHES * AUTO_RECORDS)
    return AUTO_RECORDS if counted <= _ONE_BATCH_RECORDS else min(AUTO_RECORDS, -(-counted // _MIN_BATCHES))


def split(connection: sa.Connection, table: SourceTable, span: Range, records: int, most: int) -> Split:
    """Split a range into batches of about ``records`` records.

    :param connection: an open connection
    :param table: the table
    :param span: the range of positions
    :param records: number of records in a batch; more if they have the same position
    :param most: approximate maximum of records to plan; at least one batch is planned
    :return: the batches; none if the range has no rows
    """
    limit = min(max(most // records, 1), _MAX_BATCHES)
    first = _at(connection, table, span.start, span.end, 0)
    bounds: list[int] = [span.start]
    counts: list[int] = []
    if first is None:
        return Split((), False)
    while first is not None and len(counts) < limit:
        following = _next_first(connection, table, first, span.end, records)
        end = span.end if following is None else following[0]
        counts.append(table.count(connection, first, end) if following is None or following[1] else records)
        bounds.append(end)
        first = None if following is None else end
    batches = [
        PlannedBatch(table.label, Range(low, high), count)
        for low, high, count in zip(bounds[:-1], bounds[1:], counts, strict=True)
    ]
    return Split(batches, first is not None)


def empty_batch(table: SourceTable, span: Range) -> Split:
    """Return one batch that covers a range without rows, so that the checkpoint can move over it."""
    return Split([PlannedBatch(table.label, span, 0)], False)


def _next_first(
    connection: sa.Connection, table: SourceTable, first: int, end: int, records: int
) -> tuple[int, bool] | None:
    """Return the first position of the next batch, and whether this batch has another number of records than wanted.

    :param connection: an open connection
    :param table: the table
    :param first: first position of this batch, at which there is a row
    :param end: end of the range
    :param records: wanted number of records
    :return: None if this batch is the last
    """
    found = _at(connection, table, first, end, records)
    if found is None:
        return None
    if found == first:  # more rows of one position than a batch should have
        later = _at(connection, table, first + 1, end, 0)
        return None if later is None else (later, True)
    shared = _at(connection, table, first, end, records - 1) == found
    return found, shared


def _at(connection: sa.Connection, table: SourceTable, start: int, end: int, skipped: int) -> int | None:
    """Return the position of a range's row after some others; None if there is none."""
    if start >= end:
        return None
    found = connection.execute(table.rows(start, end).limit(1).offset(skipped)).scalar()
    return None if found is None else table.position(found)
