"""Split a range of a table into batches, by skipping rows along the cursor's index.

Rows of equal cursor value are in the same batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.source_plan import PlannedBatch
from airflow_provider_ckpt.connectors.sql.source_table import SourceTable
from airflow_provider_ckpt.connectors.table_split import MAX_BATCHES, Split
from airflow_provider_ckpt.core.ranges import Range

if TYPE_CHECKING:
    import sqlalchemy as sa


def split(connection: sa.Connection, table: SourceTable, span: Range, records: int, most: int) -> Split:
    """Split a range into batches of about ``records`` records.

    :param connection: an open connection
    :param table: the table
    :param span: the range of positions
    :param records: number of records in a batch; a batch has more if several rows share a position
    :param most: approximate maximum of records to plan; at least one batch is planned
    :return: the batches; none if the range has no rows
    """
    limit = min(max(most // records, 1), MAX_BATCHES)
    begin = _positions(connection, table, span.start, span.end, 0, 1)
    bounds: list[int] = [span.start]
    counts: list[int] = []
    if not begin:
        return Split((), False)
    first: int | None = begin[0]
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


def _next_first(
    connection: sa.Connection, table: SourceTable, first: int, end: int, records: int
) -> tuple[int, bool] | None:
    """Return the first position of the next batch, or None if the present batch is the last.

    :param connection: an open connection
    :param table: the table
    :param first: first position of the present batch, at which there is a row
    :param end: end of the range
    :param records: wanted number of records
    :return: the position, and whether the present batch has another number of records than wanted, because rows share a
        position
    """
    # Positions of this batch's last row, and of the row after it.
    ends = _positions(connection, table, first, end, records - 1, 2)
    if len(ends) < 2:
        return None
    last, found = ends
    if found == first:  # more rows of one position than a batch should have
        later = _positions(connection, table, first + 1, end, 0, 1)
        return (later[0], True) if later else None
    return found, last == found


def _positions(
    connection: sa.Connection, table: SourceTable, start: int, end: int, skipped: int, most: int
) -> list[int]:
    """Return the positions of some rows of a range, in order, after skipping a number of its rows.

    :param connection: an open connection
    :param table: the table
    :param start: first position of the range
    :param end: position after the range
    :param skipped: number of rows to skip
    :param most: greatest number of positions to return
    """
    if start >= end:
        return []
    found = connection.execute(table.rows(start, end).limit(most).offset(skipped)).scalars()
    return [table.position(value) for value in found]
