"""Split a range of a PostgreSQL table into batches by counting rows along the cursor's index.

With an index whose first column is the cursor, each boundary is found by skipping N index entries; without one, a
single scan numbers the rows. Rows of equal cursor value are in the same batch.
"""

from __future__ import annotations

import logging

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.column_types import CursorKind, position_sql, value_sql
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.source_plan import PlannedBatch
from airflow_provider_ckpt.connectors.table_split import AUTO_BYTES, AUTO_RECORDS, MAX_COUNTED, Split, batch_records
from airflow_provider_ckpt.core.ranges import Range

log = logging.getLogger(__name__)

_INDEX = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_am am ON am.oid = c.relam
    WHERE i.indrelid = {0}::oid AND i.indkey[0] = {1}::int
      AND i.indisvalid AND i.indpred IS NULL AND am.amname = 'btree'
)
"""
_SIZE = """
SELECT sum(pg_catalog.pg_table_size(c.oid))::bigint, sum(greatest(c.reltuples, 0))::bigint
FROM pg_catalog.pg_class c
WHERE c.oid = {0}::oid OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree({0}::oid))
"""


class Splitter:
    """Splitter of ranges of one table into batches.

    The constructor looks up whether an index begins with the cursor, and logs a warning if none does.

    :param fetch: runs a query on the source database and returns its rows
    :param table: the source table
    :param cursor: the cursor column's name
    """

    def __init__(self, fetch: Fetch, table: Table, cursor: str) -> None:
        self._fetch = fetch
        self._table = table
        column = table.by_name[cursor]
        self._column = quote(cursor)
        self._kind = CursorKind(column.base_type)
        self._indexed: bool = fetch(_INDEX, [table.oid, column.number])[0][0]
        if not self._indexed:
            log.warning(
                "table %s has no index that leads with the cursor %s: planning and every batch scan the whole table",
                table.label,
                cursor,
            )

    def batch_records(self, start: int, end: int) -> int:
        """Return the number of records that each batch of a range should have.

        A batch has at most :data:`AUTO_RECORDS` records and about :data:`AUTO_BYTES` bytes, and fewer records if the
        range would otherwise yield too few batches for several lanes.

        :param start: first position of the range
        :param end: position after the range
        """
        size, known = self._fetch(_SIZE, [self._table.oid])[0]
        counted = self._count(start, end, MAX_COUNTED)
        records = max(known or 0, counted, 1)
        return batch_records(counted, max(min(AUTO_RECORDS, AUTO_BYTES * records // max(size or 0, 1)), 1))

    def split(self, partition: str, start: int, end: int, records: int, most: int) -> Split:
        """Split a range into batches of about ``records`` records.

        :param partition: id of the source partition
        :param start: first position of the range
        :param end: position after the range
        :param records: number of records in a batch; a batch has more if rows at its end share one position
        :param most: approximate maximum of records in all batches; at least one batch is returned
        :return: the batches (none if the range has no rows), and whether rows of the range follow them
        """
        count = max(most // records, 1)
        firsts = self._first_positions(start, end, records, count + 1)
        if not firsts:
            return Split((), False)
        more = len(firsts) > count
        bounds = [start, *firsts[1:]] if more else [start, *firsts[1:], end]
        planned = [records] * (len(bounds) - 1)
        if not more:
            planned[-1] = self._count(firsts[-1], end, None)
        batches = [
            PlannedBatch(partition, Range(low, high), counts)
            for low, high, counts in zip(bounds[:-1], bounds[1:], planned, strict=True)
        ]
        return Split(batches, more)

    def _within(self, start: int, end: int) -> str:
        low, high = value_sql(self._kind, start), value_sql(self._kind, end)
        return f"{self._column} >= {low} AND {self._column} < {high}"

    def _count(self, start: int, end: int, most: int | None) -> int:
        limit = "" if most is None else f" LIMIT {most:d}"
        found = self._fetch(
            f"SELECT count(*) FROM (SELECT FROM {self._table.sql} WHERE {self._within(start, end)}{limit}) AS held", []
        )
        return int(found[0][0])

    def _first_positions(self, start: int, end: int, records: int, limit: int) -> list[int]:
        """Return the position of the first row of each batch of a range, in order; none if the range has no rows.

        :param start: first position of the range
        :param end: position after the range
        :param records: number of records in a batch
        :param limit: greatest number of batches
        """
        query = self._skipping_query if self._indexed else self._numbering_query
        return [int(row[0]) for row in self._fetch(query(start, end, records, limit), [])]

    def _skipping_query(self, start: int, end: int, records: int, limit: int) -> str:
        name, table, high = self._column, self._table.sql, value_sql(self._kind, end)
        return f"""
            WITH RECURSIVE ckpt_first (at, number) AS (
                (SELECT {name}, 1 FROM {table} WHERE {self._within(start, end)} ORDER BY {name} LIMIT 1)
              UNION ALL
                SELECT CASE WHEN ckpt_next.at > ckpt_first.at THEN ckpt_next.at ELSE (
                    SELECT {name} FROM {table} WHERE {name} > ckpt_first.at AND {name} < {high} ORDER BY {name} LIMIT 1
                ) END, ckpt_first.number + 1
                FROM ckpt_first, LATERAL (
                    SELECT {name} AS at FROM {table} WHERE {name} >= ckpt_first.at AND {name} < {high}
                    ORDER BY {name} OFFSET {records:d} LIMIT 1
                ) AS ckpt_next
                WHERE ckpt_first.number < {limit:d}
            )
            SELECT {position_sql(self._kind, "at")} FROM ckpt_first WHERE at IS NOT NULL ORDER BY number"""

    def _numbering_query(self, start: int, end: int, records: int, limit: int) -> str:
        name = self._column
        return f"""
            SELECT {position_sql(self._kind, "min(at)")} FROM (
                SELECT {name} AS at, (rank() OVER (ORDER BY {name}) - 1) / {records:d} AS number
                FROM {self._table.sql} WHERE {self._within(start, end)}
            ) AS numbered GROUP BY number ORDER BY number LIMIT {limit:d}"""
