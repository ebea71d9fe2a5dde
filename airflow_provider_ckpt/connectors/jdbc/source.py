"""Plan the batches of the jdbc source: one table, ordered by a cursor column, is its only partition.

JDBC does not show which transactions are running, so a bound is never certain to be closed. The source takes the
greatest cursor value and waits ``close_wait``. A row that is committed later than ``close_wait`` after it got its
cursor value may still appear below the bound; only ``recover`` finds it.
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
from airflow_provider_ckpt.connectors.jdbc.connector import JdbcSourceSection
from airflow_provider_ckpt.connectors.jdbc.split import split
from airflow_provider_ckpt.connectors.jdbc.table import Table, look_up
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.record_positions import PositionDigest, RecordPositions
from airflow_provider_ckpt.connectors.source_plan import (
    Plan,
    PlanRequest,
    SourceFile,
    SourcePartition,
    Start,
)
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.connectors.table_split import MAX_COUNTED, Split, batch_records, plan_ranges
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import START, Range

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask

_WESTERNMOST_SECONDS = 12 * 3600
"""Number of seconds by which the westernmost time zone, in which a calendar day ends last, is behind UTC."""


_MAX_FULL_DIGEST = 1_000
"""Greatest number of rows in a range whose digest tells their positions, as sums; with more rows it has only a count.
"""

_AGED_BOUND = "stood"
"""Key in the partition's state (:attr:`.Plan.states`) of the newest bound that a planning has used."""


class JdbcSource:
    """Planning side of the jdbc source.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Source`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the Airflow connection of the database
    :raises ConfigError: if the connection is not usable
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        source = JdbcSourceSection.of(pipeline)
        self._pipeline = pipeline.name
        self._declared = source
        self._wait = source.close_wait.total_seconds()
        self._database = Database(require_connection(connection), source.jars, f"planning from {source.table}")

    def check(self) -> None:
        """Raise ConfigError if the table or a column is missing, or the cursor has a wrong type or is NULL in a row."""
        self._table().refuse_nulls()

    def reads(self, output: Output) -> bool:
        """Return whether the sink writes to the source's table; see :class:`ReadsOutputs`.

        The result is False unless both are in PostgreSQL, since the identity of other tables is not known.

        :param output: the table, topic or files to which the sink writes
        """
        if not isinstance(output, WrittenTarget) or output.system != "postgresql":
            return False
        return output.identity == self._table().identity()

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the table as the source's only partition; see :meth:`Source.partitions`."""
        table = self._table()
        return [SourcePartition(table.label, table.identity())]

    def start(self, partition: str, start_from: str | int) -> Start:  # noqa: ARG002  # the table is the only partition
        """Return the position at which the table is first read.

        For ``earliest`` it is :data:`START`, since a transaction that has not committed yet may have lower positions
        than the lowest visible one. For ``latest`` it is the position after the greatest visible one.

        :param partition: id of the source's only partition
        :param start_from: ``earliest``, ``latest`` or the position itself
        """
        if isinstance(start_from, int):
            return Start(start_from)
        greatest = self._table().greatest() if start_from == "latest" else None
        return Start(START if greatest is None else greatest + 1)

    def shape(self) -> RecordShape:
        """Return the columns to read (those that the pipeline names, or else all columns) and their Spark types."""
        return RecordShape(False, [(column.name, column.spark) for column in self._table().columns])

    def plan(self, request: PlanRequest) -> Plan:
        """Split each range into batches; see :meth:`Source.plan`.

        A range without an end extends to the newest bound for which ``close_wait`` has passed.

        :param request: the ranges to plan, with limits and the state of the last planning
        """
        table = self._table()
        plan = self._with_closed_bound(table, request)

        def split_range(span: Range, left: int) -> Split:
            records = request.records_per_batch or batch_records(table.count(span, MAX_COUNTED))
            return split(table, span, records, left)

        return plan_ranges(request, plan, split_range)

    def may_have_late_records(self) -> bool:
        """Return True: JDBC does not tell when the last transaction with a position below a bound has ended."""
        return True

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return one digest for each range: the number of rows that are visible now, and sums over their positions.

        A digest that differs from an earlier one shows that rows have appeared or gone. For a range with over 1000
        rows, it has only their number. See :meth:`Source.digests`.
        """
        table = self._table()
        return [self._digest(table, span) for span in ranges]

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Return the positions of the rows in a range that are visible now, in order; see :meth:`Source.positions`."""
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
        """Return the same tasks, each with the JSON form of the :class:`.ReadQuery` by which Spark reads its records.

        A task that gives up its batch (instruction ``void``) gets a query that returns no row.
        """
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
        """Return a plan without batches that has the bound for new rows, and the state for the next planning.

        The bound of an earlier planning is used again if it is beyond the starts of all ranges. Otherwise the bound is
        the position after the greatest one now, and is used after a pause of ``close_wait``, or at once if the plan
        only measures the lag. The plan is empty if no range needs a bound, or no row lies beyond the starts of the
        ranges.

        :param table: the table
        :param request: the request that the plan answers
        :raises ConfigError: if the cursor is NULL in some rows
        """
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
    """Return the position after the greatest one in a table; None for an empty table.

    For a date cursor, more rows can get the current date until the day is over in all time zones. So if the greatest
    date is today in the westernmost time zone, or at most two days later, the position of today in that zone is
    returned.
    """
    greatest = table.greatest()
    if greatest is None:
        return None
    if table.kind is CursorKind.DATE:
        today = int((time.time() - _WESTERNMOST_SECONDS) // 86_400) * MICROSECONDS_A_DAY
        if today <= greatest <= today + 2 * MICROSECONDS_A_DAY:
            return today
    return greatest + 1
