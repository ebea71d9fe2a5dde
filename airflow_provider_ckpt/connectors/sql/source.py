"""Plan the batches of an sql source: its one table, ordered by a cursor column, is its only partition.

A plan never ends beyond a closed bound (``closed_bound.py``), so that a row that is committed late cannot be skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.record_positions import PositionDigest, RecordPositions
from airflow_provider_ckpt.connectors.source_plan import (
    Plan,
    PlanRequest,
    SourceFile,
    Start,
)
from airflow_provider_ckpt.connectors.sql.closed_bound import candidate, wait_until_closed
from airflow_provider_ckpt.connectors.sql.source_session import SqlSourceSession
from airflow_provider_ckpt.connectors.sql.source_table import SourceTable, look_up
from airflow_provider_ckpt.connectors.sql.split import split
from airflow_provider_ckpt.connectors.table_split import (
    AUTO_BYTES,
    AUTO_RECORDS,
    MAX_COUNTED,
    Split,
    batch_records,
    plan_ranges,
)
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import START, Range

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask

log = logging.getLogger(__name__)

_MAX_FULL_DIGEST = 1_000
"""Greatest number of rows in a range whose digest has checksums of the positions; for larger ranges it has a count."""


class SqlSource(SqlSourceSession[SourceTable]):
    """Planning side of a source that reads a table of an SQL database by a cursor column.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Source`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the Airflow connection of the database
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        super().__init__(pipeline, connection)
        self._wait = self._section.close_wait.total_seconds()

    def check(self) -> None:
        """Raise ConfigError if table, columns, cursor or server are unsuitable; see :meth:`Source.check`.

        A warning is logged if the database may give a removed row's number to a later row.
        """
        with self._database.session(f"checking {self._section.table}") as connection:
            table = self._table(connection)
            table.refuse_bad_cursors(connection)
            reused = self._database.dialect.reused_numbers(connection, table.table, table.cursor)
            elsewhere = self._database.dialect.transactions_elsewhere(connection)
        if elsewhere:
            self._refuse_hidden_transactions(elsewhere)
        if reused:
            log.warning("pipeline %s: %s", self._pipeline, reused)

    def start(self, partition: str, start_from: str | int) -> Start:  # noqa: ARG002  # the table is the only partition
        """Return the position at which the table is first read.

        For ``earliest`` it is :data:`START`, since a transaction that has not committed yet may have lower positions
        than the lowest visible one. For ``latest`` it is the position after the greatest visible one (less for a cursor
        of a coarse type, see :func:`.candidate`), or START if the table is empty.

        :param partition: id of the source's only partition
        :param start_from: ``earliest``, ``latest`` or the position itself
        """
        if isinstance(start_from, int):
            return Start(start_from)
        if start_from == "earliest":
            return Start(START)
        with self._database.session(f"planning from {self._section.table}") as connection:
            table = self._table(connection)
            latest = candidate(table, table.greatest(connection))
        return Start(START if latest is None else latest)

    def plan(self, request: PlanRequest) -> Plan:
        """Split each range into batches; see :meth:`Source.plan`.

        A range without an end extends to the newest closed bound.

        :param request: the ranges to plan, with limits and the values that the last planning stored
        :raises SourceError: if the database will give later rows numbers below the end of the last plan, unless
            ``source.late_rows`` is ``recover``
        """
        plan = self._with_closed_bound(request)
        with self._database.session(f"planning from {self._section.table}") as connection:
            table = self._table(connection)
            return plan_ranges(request, plan, lambda span, left: self._split(connection, table, span, request, left))

    def may_have_late_records(self) -> bool:
        """Return True: an application may choose any cursor value, or get it from a sequence long before its INSERT."""
        return True

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return for each range a digest of the positions that are visible now: their number and checksums.

        For a range with over 1000 rows, the digest has only the number. The result is never None. See
        :meth:`Source.digests`.
        """
        with self._database.session(f"searching {self._section.table}") as connection:
            table = self._table(connection)
            return [self._digest(connection, table, span) for span in ranges]

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Return the positions of the rows in a range that are visible now, in order; see :meth:`Source.positions`."""
        with self._database.session(f"searching {self._section.table}") as connection:
            return self._table(connection).positions(connection, span)

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """Return the tasks unchanged, since a reader needs only their range; see :meth:`Source.locate`."""
        return tasks

    def _look_up(self, connection: sa.Connection) -> SourceTable:
        return look_up(self._database, connection, self._section)

    @staticmethod
    def _split(connection: sa.Connection, table: SourceTable, span: Range, request: PlanRequest, left: int) -> Split:
        records = request.records_per_batch or SqlSource._batch_records(connection, table, span)
        return split(connection, table, span, records, left)

    @staticmethod
    def _batch_records(connection: sa.Connection, table: SourceTable, span: Range) -> int:
        """Return the number of records that each batch of a range should have.

        A batch has about :data:`.AUTO_BYTES` bytes at most if the database knows the size of the table.

        :param connection: an open connection
        :param table: the source table
        :param span: the range
        """
        counted = table.count(connection, span.start, span.end, MAX_COUNTED)
        size, rows = table.database.dialect.stored_size(connection, table.table) or (0, 0)
        # The statistics of a table that was filled just now may still say that it is almost empty.
        most = AUTO_BYTES * max(rows, counted, 1) // max(size, 1)
        return batch_records(counted, max(min(AUTO_RECORDS, most), 1))

    @staticmethod
    def _digest(connection: sa.Connection, table: SourceTable, span: Range) -> PositionDigest:
        count = table.count(connection, span.start, span.end)
        if count > _MAX_FULL_DIGEST:
            return PositionDigest(count, None)
        return RecordPositions.of(table.positions(connection, span)).digest

    def _with_closed_bound(self, request: PlanRequest) -> Plan:
        """Return a plan without batches that has the closed bound, and the state for the next planning.

        The plan has neither if no range needs a bound, or if no row lies beyond the ranges' starts; it has a state, but
        no bound, if no bound has closed in time.

        :param request: the request that the plan answers
        :raises ConfigError: if the cursor has no position in some rows
        :raises SourceError: as :meth:`_late_numbers` does
        """
        starts = [todo.start for todo in request.ranges if todo.needs_bound]
        if not starts:
            return Plan()
        tail = max(starts)
        with self._database.session(f"planning from {self._section.table}") as connection:
            table = self._table(connection)
            table.refuse_bad_cursors(connection)
            notices = [] if request.lag_only else self._late_numbers(connection, table, tail)
            noted = candidate(table, table.greatest(connection))
        if noted is None or noted <= tail:  # nothing new is visible, so there is nothing to wait for
            return Plan(notices=notices)
        stored: Mapping[str, Any] = request.states.get(table.label, {})
        closing = wait_until_closed(table, noted, stored, self._wait, lag_only=request.lag_only)
        if closing.unseen:
            log.warning(
                "pipeline %s: the user of connection %r may not see running transactions, so planning waits for all of "
                "close_wait. GRANT PROCESS ON *.* to it.",
                self._pipeline,
                self._database.known.id,
            )
        bounds = {} if closing.bound is None else {table.label: closing.bound}
        return Plan(bounds=bounds, states={table.label: closing.state}, notices=notices)

    def _refuse_hidden_transactions(self, reason: str) -> None:
        """Refuse a server that does not show the transactions that other servers run for it.

        :param reason: clause that says why there are such transactions
        :raises ConfigError: unless ``source.late_rows: recover``, with which a warning is logged
        """
        problem = (
            f"the server of connection {self._database.known.id!r} {reason}, so it hides the transactions of other "
            "servers: a row that one of them commits late, with a cursor value below others, would not be read."
        )
        if self._section.late_rows == "recover":
            log.warning("pipeline %s: %s", self._pipeline, problem)
            return
        raise ConfigError(
            problem,
            pipeline=self._pipeline,
            hint="Name a connection to the primary. With source.late_rows: recover, this is a warning, and "
            "`airflow ckpt recover` finds such rows.",
        )

    def _late_numbers(self, connection: sa.Connection, table: SourceTable, tail: int) -> list[str]:
        """Return a warning if the database will give the next rows of the table numbers that were planned already.

        No run would read these rows.

        :param connection: an open connection
        :param table: the source table
        :param tail: position from which new rows are planned
        :return: one warning; an empty list if there is no such danger, or the next number is not known
        :raises SourceError: in place of the warning, unless ``source.late_rows: recover``
        """
        following = self._database.dialect.next_number(connection, table.table, table.cursor)
        if following is None or tail == START or following >= tail:
            return []
        problem = (
            f"the next row of {table.label} gets {table.cursor.name} {following}, but rows up to {tail - 1} were read: "
            "the table was emptied or restored, or its numbering was set back."
        )
        if self._section.late_rows == "recover":
            return [problem]
        raise SourceError(
            problem,
            pipeline=self._pipeline,
            hint=f"Set the numbering to {tail}, or rewind the pipeline. With source.late_rows: recover, "
            "`airflow ckpt recover` finds such rows.",
        )
