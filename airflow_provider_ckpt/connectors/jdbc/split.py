"""Split a range of a table into batches by ranking its rows by cursor value, in SQL that most databases support.

Rows of equal cursor value are in the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_ckpt.connectors.jdbc.client import ResultKind
from airflow_provider_ckpt.connectors.jdbc.table import Table
from airflow_provider_ckpt.connectors.source_plan import PlannedBatch
from airflow_provider_ckpt.connectors.table_split import MAX_BATCHES, Split
from airflow_provider_ckpt.core.ranges import Range


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of consecutive rows that becomes one batch.

    :param first: smallest position of the rows
    :param last: greatest position of the rows
    :param rows: number of rows
    """

    first: int
    last: int
    rows: int


def split(table: Table, span: Range, records: int, most: int) -> Split:
    """Split a range into batches of about ``records`` records.

    :param table: the table
    :param span: the range of positions
    :param records: number of records in a batch; it has more or fewer if rows have the same position
    :param most: approximate maximum of records to plan; at least one batch is planned
    :return: the batches; none if the range has no rows
    """
    limit = min(max(most // records, 1), MAX_BATCHES) * records + 1
    groups = _groups(table, span, records, limit)
    if not groups:
        return Split((), False)
    more, end = sum(group.rows for group in groups) >= limit, span.end
    if more and len(groups) > 1:
        end = groups.pop().first  # further rows of this group were not queried
    elif more:
        following = table.after(groups[0].last, span.end)
        more, end = following is not None, span.end if following is None else following
        groups = [_Group(groups[0].first, groups[0].last, table.count(Range(span.start, end)))]
    bounds = [span.start, *(group.first for group in groups[1:]), end]
    batches = [
        PlannedBatch(table.label, Range(low, high), group.rows)
        for low, high, group in zip(bounds[:-1], bounds[1:], groups, strict=True)
    ]
    return Split(batches, more)


def _groups(table: Table, span: Range, records: int, limit: int) -> list[_Group]:
    """Divide the first ``limit`` rows of a range into groups of about ``records`` rows, and return them in order.

    Values that differ by less than a microsecond have the same position. Groups that share such a position are merged.

    :param table: the table
    :param span: the range of positions
    :param records: number of rows in a group
    :param limit: maximum number of rows in all groups together
    """
    query = f"""
        SELECT MIN(ckpt_at), MAX(ckpt_at), COUNT(*) FROM (
            SELECT ckpt_at, FLOOR((RANK() OVER (ORDER BY ckpt_at) - 1) / {records:d}) AS ckpt_group FROM (
                SELECT {table.cursor_sql} AS ckpt_at FROM {table.sql} WHERE {table.within(span)}
                ORDER BY {table.cursor_sql} {table.dialect.first(limit)}
            ) ckpt_looked
        ) ckpt_ranked GROUP BY ckpt_group ORDER BY ckpt_group"""
    groups: list[_Group] = []
    for first, last, rows in table.database.rows(query, [table.kind, table.kind, ResultKind.COUNT]):
        if groups and first <= groups[-1].last:
            before = groups.pop()
            groups.append(_Group(before.first, last, before.rows + rows))
        else:
            groups.append(_Group(first, last, rows))
    return groups
