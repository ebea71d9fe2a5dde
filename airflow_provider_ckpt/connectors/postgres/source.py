"""Plan the batches of a postgres source: its one table, ordered by a cursor column, is its only partition.

A plan never ends beyond a closed bound (``closed_bound.py``), so that a row that is committed late cannot be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    quote,
)
from airflow_provider_ckpt.connectors.postgres.closed_bound import (
    CandidateBound,
    candidate_position,
    greatest_position,
    wait_until_closed,
)
from airflow_provider_ckpt.connectors.postgres.column_types import (
    CursorKind,
    position_sql,
    spark_type,
    value_sql,
)
from airflow_provider_ckpt.connectors.postgres.columns_version import columns_version_sql
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.late_row_refusal import LateRows
from airflow_provider_ckpt.connectors.postgres.row_security import refuse_row_security
from airflow_provider_ckpt.connectors.postgres.source_session import SourceSession
from airflow_provider_ckpt.connectors.postgres.split import Splitter
from airflow_provider_ckpt.connectors.postgres.table import (
    Fetch,
    Table,
    describe_table,
)
from airflow_provider_ckpt.connectors.postgres.type_widening import is_wider
from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.connectors.source_plan import (
    FindUnreceipted,
    Plan,
    PlanRequest,
    SourceFile,
    Start,
)
from airflow_provider_ckpt.connectors.source_protocol import PlanningAlarm, RecordShape
from airflow_provider_ckpt.connectors.table_split import Split, plan_ranges
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import START, Range
from airflow_provider_ckpt.core.schema_version import ColumnState, SchemaVersion
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

PLANNING_SETTINGS = {"default_transaction_read_only": "on", "enable_seqscan": "off", "enable_bitmapscan": "off"}
"""Session settings for planning.

Batch boundaries are found by an index scan; without these settings, PostgreSQL may choose a sort instead.
"""

_LAG_WAIT_SECONDS = 1.0
"""Longest wait for a closed bound when only the lag is measured, in seconds: enough for short transactions."""

_STANDBY_AND_HIDDEN = """
SELECT pg_catalog.pg_is_in_recovery(), ARRAY(
    SELECT attname::text FROM pg_catalog.pg_attribute
    WHERE attrelid = {0}::oid AND attname = ANY({1}::text[])
      AND NOT pg_catalog.has_column_privilege(attrelid, attnum, 'SELECT')
    ORDER BY attnum
)
"""
"""Query of whether the server is a standby, and which of the given columns the user may not read."""
_READABLE_KINDS = frozenset({"r", "p", "v"})


def _to_digest(row: tuple[Any, ...]) -> PositionDigest:
    count, quotients, remainders, cubes = row
    return PositionDigest(count, (quotients, remainders, cubes))


class PostgresSource(SourceSession):
    """Planning side of a source that reads a PostgreSQL table by a cursor column.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Source`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the Airflow connection of the database
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        source = PostgresSourceSection.of(pipeline)
        super().__init__(pipeline, connection, PLANNING_SETTINGS, source.key)
        self._cursor = source.cursor
        self._late_rows = LateRows(pipeline)
        self._wait = source.close_wait.total_seconds()
        self._follows_columns = pipeline.schema_ is not None
        self._described: tuple[str | None, Table | None] | None = None

    def check(self) -> None:
        """Raise ConfigError if the table, its columns or its cursor are unsuitable; see :meth:`Source.check`.

        A cursor is unsuitable, too, if its new values can be smaller than values that were read (see
        :class:`.LateRows`); with ``source.late_rows: recover`` this is only a warning.
        """
        with self._session() as fetch:
            table = self._table(fetch)
            self._columns(table)
            self._check_cursor(fetch, table)

    def start(self, partition: str, start_from: str | int) -> Start:  # noqa: ARG002 - the table is the only partition
        """Return the position at which the table is first read.

        For ``earliest`` it is :data:`START`: an uncommitted transaction may have positions below the smallest visible
        one. For ``latest`` it is one past the greatest position (less for a cursor of a coarse type, see
        :func:`.candidate_position`), or START if the table is empty.

        :param partition: id of the source's only partition
        :param start_from: ``earliest``, ``latest`` or the position itself
        """
        if isinstance(start_from, int):
            return Start(start_from)
        if start_from == "earliest":
            return Start(START)
        with self._session() as fetch:
            table = self._table(fetch)
            greatest = greatest_position(fetch, table, self._cursor)
            latest = candidate_position(fetch, table, self._cursor, greatest)
            return Start(START if latest is None else latest)

    def version_shape(self, version: SchemaVersion) -> RecordShape:
        """Return the columns that records of a schema version have, with their Spark types.

        Columns that the version leaves out are not included. See :meth:`SourceWithColumns.version_shape`.
        """
        columns = [column for column in version.columns if column.state is not ColumnState.LEFT_OUT]
        return RecordShape(
            False,
            [(column.name, spark_type(column.type)) for column in columns],
            version.number,
            {column.name: (column.number, column.type) for column in columns if column.state is not ColumnState.NULL},
            {
                column.name: (spark_type(column.kept) if column.kept else "", column.refused_by)
                for column in columns
                if column.state is ColumnState.REFUSED
            },
        )

    def is_wider(self, name: str, before: str, after: str) -> bool:
        """Return whether a column may change to a new type without loss; see :meth:`SourceWithColumns.is_wider`.

        A cursor of type ``date`` may not change, since the positions of a date and a time mean different rows.

        :param name: name of the column
        :param before: type before the change
        :param after: type after the change
        """
        return is_wider(before, after) and (name != self._cursor or before != "date")

    def plan(self, request: PlanRequest) -> Plan:
        """Split each range into batches; see :meth:`Source.plan`.

        A range without an end extends to the newest closed bound.

        :param request: the ranges to plan, with limits and the values that the last planning stored
        :raises SourceError: if there is a sign that rows got positions below the end of the last plan since it was
            made; with ``source.late_rows: recover`` it is only logged
        """
        with self._session() as fetch:
            table = self._table(fetch)
            splitter = Splitter(fetch, table, self._cursor)
            greatest, bounds = self._plan_closed_bound(fetch, table, request)

            def split(span: Range, left: int) -> Split:
                records = request.records_per_batch or splitter.batch_records(span.start, span.end)
                return splitter.split(table.label, span.start, span.end, records, left)

            plan = plan_ranges(request, bounds, split)
            return plan if request.lag_only else self._late_rows.check_plan(fetch, table, request, plan, greatest)

    def may_have_late_records(self) -> bool:
        """Return True: an application may choose any cursor value, or get it from a sequence long before its INSERT."""
        return True

    def watch(
        self,
        partition: str,  # noqa: ARG002
        end: int,
        state: Mapping[str, Any],
        unread: FindUnreceipted | None = None,
    ) -> PlanningAlarm | None:
        """Return the signs of late rows that would make the next planning fail; None if there are none.

        See :meth:`WatchedSource.watch`.

        :param partition: id of the source's only partition
        :param end: end of the plan: all positions before it were planned
        :param state: values that the last planning stored in the ledger for the table
        :param unread: function that finds records without a receipt; None if receipts cannot be searched
        """
        with self._session() as fetch:
            table = self._table(fetch)
            greatest = greatest_position(fetch, table, self._cursor)
            return self._late_rows.watch(fetch, table, state, end, greatest, unread)

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return for each range a digest of the positions that are visible now: their number and checksums.

        The result is never None. See :meth:`Source.digests`.
        """
        with self._session() as fetch:
            table = self._table(fetch)
            return [_to_digest(fetch(PositionDigest.sql(*self._rows(table, span)), [])[0]) for span in ranges]

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Return the positions of the rows in a range that are visible now, in order; see :meth:`Source.positions`."""
        with self._session() as fetch:
            position, rows = self._rows(self._table(fetch), span)
            return [row[0] for row in fetch(f"SELECT {position} {rows} ORDER BY 1", [])]

    def _rows(self, table: Table, span: Range) -> tuple[str, str]:
        """Return two parts of the query for a range's rows: the SQL expression of the position, and FROM with WHERE.

        :param table: the source table
        :param span: the range
        """
        kind, cursor = CursorKind(table.by_name[self._cursor].base_type), quote(self._cursor)
        low, high = value_sql(kind, span.start), value_sql(kind, span.end)
        return position_sql(kind, cursor), f"FROM {table.sql} WHERE {cursor} >= {low} AND {cursor} < {high}"

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """Return the same tasks with the table's oid in ``detail``, so that a reader refuses a recreated table."""
        with self._session() as fetch:
            oid = self._table(fetch).oid
            return [replace(task, detail={**task.detail, "oid": oid}) for task in tasks]

    def _describe(self, fetch: Fetch) -> Table | None:
        """Return the description of the table; None if it does not exist.

        If the pipeline follows changes of columns, the last description is reused as long as no column was altered.

        :param fetch: runs a query and returns its rows
        """
        if not self._follows_columns:
            return describe_table(fetch, self._name)
        [(version,)] = fetch(f"SELECT {columns_version_sql(self._name)}", [])
        # The version was read before the description, so that it is not newer than the columns described.
        if self._described is None or self._described[0] != version:
            self._described = (version, describe_table(fetch, self._name))
        return self._described[1]

    def _table(self, fetch: Fetch) -> Table:
        table = super()._table(fetch)
        if table.kind not in _READABLE_KINDS:
            raise ConfigError(
                f"{table.label} is not a table or a view (relkind {table.kind}).", pipeline=self._pipeline,
                hint="New rows of a materialised view or foreign table cannot be detected; name the table behind it.",
            )  # fmt: skip
        if self._cursor not in table.by_name:
            raise ConfigError(
                f"source table {table.label} has no column {self._cursor!r}, the pipeline's cursor.",
                pipeline=self._pipeline,
                hint=f"Its columns are: {', '.join(table.by_name)}.",
            )
        if table.by_name[self._cursor].base_type not in tuple(CursorKind):
            raise ConfigError(
                f"cursor {self._cursor} of {table.label} has type {table.by_name[self._cursor].type_sql}.",
                pipeline=self._pipeline,
                hint="A cursor must be an integer, a date, a timestamp or a timestamp with time zone.",
            )
        return table

    def _check_cursor(self, fetch: Fetch, table: Table) -> None:
        read = {self._cursor, *(self._wanted or table.by_name)}
        standby, hidden = fetch(_STANDBY_AND_HIDDEN, [table.oid, sorted(read)])[0]
        if standby:
            raise ConfigError(
                f"the server of connection {self._connection.id!r} is a standby, which hides running transactions.",
                pipeline=self._pipeline,
                hint="Name a connection to the primary.",
            )
        if len(hidden) == len(read):
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not read {table.label}.",
                pipeline=self._pipeline,
                hint=f"GRANT SELECT ON {table.sql} to it.",
            )
        if hidden and not self._follows_columns:  # else a policy may leave these columns out
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not read {', '.join(hidden)} of {table.label}.",
                pipeline=self._pipeline,
                hint=f"GRANT SELECT ({', '.join(map(quote, hidden))}) ON {table.sql} to it, or name the columns to "
                "read in source.columns.",
            )
        refuse_row_security(fetch, table, self._section, self._pipeline)
        self._late_rows.check(fetch, table)
        self._refuse_nulls(fetch, table)

    def _refuse_nulls(self, fetch: Fetch, table: Table) -> None:
        name = quote(self._cursor)
        if table.by_name[self._cursor].not_null:
            return
        if fetch(f"SELECT EXISTS (SELECT FROM {table.sql} WHERE {name} IS NULL)", [])[0][0]:
            raise ConfigError(
                f"cursor {self._cursor} of {table.label} is NULL in some rows, which therefore have no position.",
                pipeline=self._pipeline,
                hint=f"Fill them, then ALTER TABLE {table.sql} ALTER {name} SET NOT NULL, or choose another cursor.",
            )

    def _plan_closed_bound(self, fetch: Fetch, table: Table, request: PlanRequest) -> tuple[int | None, Plan]:
        """Return the table's greatest position, and a plan without batches that has the closed bound.

        A candidate for the bound closes when the transactions end that may still write rows below it. If the newest one
        did not close in time, the plan's state contains a candidate for which the next planning goes on waiting, and
        the bound is an older one that has closed, or missing. It is missing too if no range needs it, or there is
        nothing new. The greatest position is None if no range needs a bound, or the table is empty.

        :param fetch: runs a query and returns its rows
        :param table: the source table
        :param request: the request that the plan answers
        :raises ConfigError: if the cursor is NULL in some rows
        """
        if not any(todo.needs_bound for todo in request.ranges):
            return None, Plan()
        self._refuse_nulls(fetch, table)
        greatest = greatest_position(fetch, table, self._cursor)
        noted = candidate_position(fetch, table, self._cursor, greatest)
        stored = request.states.get(table.label)
        tail = max(todo.start for todo in request.ranges if todo.needs_bound)
        if noted is not None and noted <= tail:  # nothing new is visible, so there is nothing to wait for
            return greatest, Plan()
        wait = min(self._wait, _LAG_WAIT_SECONDS) if request.lag_only else self._wait
        closing = wait_until_closed(
            fetch, noted, CandidateBound.from_json(stored) if stored and "candidate" in stored else None, wait
        )
        states = {table.label: closing.open_candidate.to_json() if closing.open_candidate else {}}
        return greatest, Plan(bounds={} if closing.bound is None else {table.label: closing.bound}, states=states)
