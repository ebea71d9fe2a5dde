"""Planning side of the jdbc source: one table, ordered by a cursor column, as one partition.

JDBC does not show which transactions are running, so a bound is never final: a row that is committed later than
``close_wait`` after it got its cursor value may appear below the bound, and is found by ``recover``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc import query
from airflow_provider_ckpt.connectors.jdbc.client import Database, require_connection
from airflow_provider_ckpt.connectors.jdbc.column_types import MICROSECONDS_A_DAY, CursorKind
from airflow_provider_ckpt.connectors.jdbc.split import batch_records, empty_batch, split
from airflow_provider_ckpt.connectors.jdbc.table import Table, look_up
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.record_positions import PositionDigest, RecordPositions
from airflow_provider_ckpt.connectors.source_protocol import (
    Plan,
    PlannedBatch,
    PlanRequest,
    RecordShape,
    SourceFile,
    SourcePartition,
    Start,
)
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import START, Range

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave import BatchTask

_WESTERNMOST_SECONDS = 12 * 3600
"""Seconds by which the westernmost time zone is behind UTC; only then a day is over everywhere."""


_MAX_FULL_DIGEST = 1_000
"""Maximum number of rows for which all positions are read through JDBC, even if the count is unchanged."""

_AGED_BOUND = "stood"
"""Key of the partition's state: the newest bound that is at least ``close_wait`` old."""


class JdbcSource:
    """Planning side of the jdbc source; see :class:`~airflow_provider_ckpt.connectors.source_protocol.Source`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the database
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        assert pipeline.source.table is not None
        assert pipeline.source.cursor is not None
        self._pipeline = pipeline.name
        self._declared = pipeline.source
        self._wait = pipeline.source.close_wait.total_seconds()
        self._database = Database(
            require_connection(connection), pipeline.source.jars, f"planning from {pipeline.source.table}"
        )

    def check(self) -> None:
        """Raise an error if the table or its cursor does not fit; see :meth:`Source.check`."""
        self._table().refuse_nulls()

    def reads(self, output: Output) -> bool:
        """See :class:`ReadsOutputs`; known of PostgreSQL tables only."""
        if not isinstance(output, WrittenTarget) or output.connector != "postgres":
            return False
        return output.identity == self._table().identity()

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the table, as the only partition."""
        table = self._table()
        return [SourcePartition(table.label, table.identity())]

    def start(self, partition: str, start_from: str | int) -> Start:  # noqa: ARG002  # the table is the only partition
        """Return the base: the given position, one past the greatest (``latest``), or the lowest (``earliest``).

        The lowest visible position would be wrong: a transaction that has not committed yet may have lower ones.
        """
        if isinstance(start_from, int):
            return Start(start_from)
        greatest = self._table().greatest() if start_from == "latest" else None
        return Start(START if greatest is None else greatest + 1)

    def shape(self) -> RecordShape:
        """Return the table's columns (or those that the pipeline names) and their Spark types."""
        return RecordShape(False, [(column.name, column.spark) for column in self._table().columns])

    def plan(self, request: PlanRequest) -> Plan:
        """Split each range into batches; a range without an end reaches to the newest bound that is old enough."""
        table = self._table()
        plan = self._with_closed_bound(table, request)
        batches: list[PlannedBatch] = []
        left, more = request.max_records, plan.more
        for todo in request.ranges:
            end = plan.bounds.get(todo.partition) if todo.end is None else todo.end
            if end is None or end <= todo.start:
                continue
            if left <= 0:
                more = True
                break
            span = Range(todo.start, end)
            found = split(table, span, request.records_per_batch or batch_records(table, span), left)
            if not found.batches and todo.end is not None:  # its rows are gone, but the checkpoint must pass the range
                found = empty_batch(table, span)
            batches.extend(found.batches)
            left -= found.records
            more = more or found.more
        return replace(plan, batches=batches, more=more)

    def may_have_late_records(self) -> bool:
        """Return True: the end of the last transaction below a bound is unknown."""
        return True

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return digests of the records visible now; for ranges with many records, only their count."""
        table = self._table()
        return [self._digest(table, span) for span in ranges]

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Return the positions of the rows that are visible now."""
        return self._table().positions(span)

    @staticmethod
    def _digest(table: Table, span: Range) -> PositionDigest:
        count = table.count(span)
        return (
            PositionDigest(count, None)
            if count > _MAX_FULL_DIGEST
            else RecordPositions.of(table.positions(span)).digest
        )

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """Return the same tasks, each with the description that Spark needs to read it."""
        table = self._table()
        common = query.table_query(table)
        located = []
        for task in tasks:
            one = common
            if task.instruction is not Instruction.VOID:
                at = table.dialect.quote(query.CURSOR_ALIAS)
                one = replace(common, where=table.dialect.within(table.kind, at, task.range))
            located.append(replace(task, detail={**task.detail, query.TASK_KEY: one.to_json()}))
        return located

    def close(self) -> None:
        """Close the connection and end the Java process."""
        self._database.close()

    def _table(self) -> Table:
        declared = self._declared
        assert declared.table is not None
        assert declared.cursor is not None
        try:
            return look_up(self._database, declared.table, declared.cursor, declared.columns)
        except CkptError as error:
            error.pipeline = self._pipeline
            raise

    def _with_closed_bound(self, table: Table, request: PlanRequest) -> Plan:
        """Return a plan with the bound for new rows: the stored one, or the newest one after waiting ``close_wait``."""
        open_ended = [todo.start for todo in request.ranges if todo.needs_bound]
        if not open_ended:
            return Plan()
        table.refuse_nulls()
        tail, newest = max(open_ended), _next_position(table)
        if newest is None or newest <= tail:  # nothing new is visible, so there is nothing to wait for
            return Plan()
        stored = request.states.get(table.label, {}).get(_AGED_BOUND, tail)
        if stored <= tail:
            if not request.lag_only:
                time.sleep(self._wait)
            stored = newest
        return Plan(bounds={table.label: stored}, states={table.label: {_AGED_BOUND: stored}}, more=newest > stored)


def _next_position(table: Table) -> int | None:
    """Return the position after the greatest, or a lower one if more rows of the current day may still appear."""
    greatest = table.greatest()
    if greatest is None:
        return None
    if table.kind is CursorKind.DATE:
        today = int((time.time() - _WESTERNMOST_SECONDS) // 86_400) * MICROSECONDS_A_DAY
        if today <= greatest <= today + 2 * MICROSECONDS_A_DAY:
            return today
    return greatest + 1
