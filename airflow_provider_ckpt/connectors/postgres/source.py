"""Planning side of the postgres source: one table, ordered by a cursor column, as one partition.

A plan never ends beyond a closed bound (``closed_bound.py``), so that a row that is committed late cannot be skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.postgres.client import (
    error_info,
    open_psycopg,
    quote,
    require_connection,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.closed_bound import (
    CandidateBound,
    candidate_position,
    greatest_position,
    wait_until_closed,
)
from airflow_provider_ckpt.connectors.postgres.column_types import (
    SPARK_TYPES,
    CursorKind,
    position_sql,
    value_sql,
)
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.identity import table_identity, tree_identities
from airflow_provider_ckpt.connectors.postgres.late_row_refusal import LateRows
from airflow_provider_ckpt.connectors.postgres.split import Splitter
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table, describe_table, psycopg_fetch
from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.connectors.source_protocol import (
    FindUnreceipted,
    Plan,
    PlannedBatch,
    PlanningAlarm,
    PlanRequest,
    RecordShape,
    SourceFile,
    SourcePartition,
    Start,
)
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType
from airflow_provider_ckpt.core.ranges import START, Range
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_SETTINGS = {"default_transaction_read_only": "on", "enable_seqscan": "off", "enable_bitmapscan": "off"}
"""Session settings for planning.

Batch boundaries are found by an index scan; without these settings, PostgreSQL may choose a sort instead.
"""

_LAG_WAIT_SECONDS = 1.0
"""Longest wait for a closed bound when only the lag is measured, in seconds: enough for short transactions."""

_STANDBY_AND_RIGHT = """
SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.has_table_privilege({0}::oid, 'SELECT')
    OR pg_catalog.has_any_column_privilege({0}::oid, 'SELECT')
"""
_READABLE_KINDS = frozenset({"r", "p", "v"})


def _to_digest(row: tuple[Any, ...]) -> PositionDigest:
    count, quotients, remainders, cubes = row
    return PositionDigest(count, (quotients, remainders, cubes))


class PostgresSource:
    """Source that reads a PostgreSQL table; see :class:`~airflow_provider_ckpt.connectors.source_protocol.Source`.

    :param pipeline: ``source.table`` and ``source.cursor`` name the table and its cursor column
    :param connection: the Airflow connection of the database
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        source = PostgresSourceSection.of(pipeline)
        self._pipeline = pipeline.name
        self._name = source.table
        self._cursor = source.cursor
        self._wanted = source.columns
        self._key = source.key
        self._late_rows = LateRows(pipeline)
        self._wait = source.close_wait.total_seconds()
        self._connection = require_connection(connection, "source")
        self._client: Any = None

    def check(self) -> None:
        """Raise ConfigError if the table, its columns or its cursor are unsuitable; see :meth:`Source.check`.

        This includes a cursor whose new values can be smaller than those that were read (see :class:`.LateRows`).
        """
        with self._session() as fetch:
            table = self._table(fetch)
            self._columns(table)
            self._check_cursor(fetch, table)

    def reads(self, output: Output) -> bool:
        """Return whether the sink's output is the table that the source reads; see :class:`ReadsOutputs`.

        Partitions and children count as the table; relations below a view are not searched.
        """
        if not isinstance(output, WrittenTarget) or output.system != "postgresql":
            return False
        with self._session() as fetch:
            return output.identity in tree_identities(fetch, self._table(fetch).oid)

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the table as the only partition."""
        with self._session() as fetch:
            table = self._table(fetch)
            return [SourcePartition(table.label, table_identity(fetch, table.oid))]

    def start(self, partition: str, start_from: str | int) -> Start:  # noqa: ARG002 - the table is the only partition
        """Return the position at which the table is first read.

        It is the given position, one past the greatest for ``latest`` (less for a cursor of a coarse type, see
        :func:`.candidate_position`), and :data:`START` for ``earliest``. The smallest visible position is not used,
        since an uncommitted transaction may have smaller ones.
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

    def shape(self) -> RecordShape:
        """Return the table's columns, or those that the pipeline names, and their Spark types."""
        with self._session() as fetch:
            return RecordShape(False, self._columns(self._table(fetch)))

    def plan(self, request: PlanRequest) -> Plan:
        """Split each range into batches; see :meth:`Source.plan`.

        A range without an end reaches to the newest closed bound.

        :raises SourceError: if positions below the plan were assigned since the last planning
        """
        with self._session() as fetch:
            table = self._table(fetch)
            cutter = Splitter(fetch, table, self._cursor)
            greatest, plan = self._plan_closed_bound(fetch, table, request)
            batches: list[PlannedBatch] = []
            left, more = request.max_records, False
            for todo in request.ranges:
                end = plan.bounds.get(todo.partition) if todo.end is None else todo.end
                if end is None or end <= todo.start:
                    continue
                if left <= 0:
                    more = True
                    break
                records = request.records_per_batch or cutter.batch_records(todo.start, end)
                cut = cutter.split(todo.partition, todo.start, end, records, left)
                if (
                    not cut.batches and todo.end is not None
                ):  # its rows are gone, but the checkpoint must pass the range
                    cut = cutter.empty_batch(todo.partition, todo.start, end)
                batches.extend(cut.batches)
                left -= cut.records
                more = more or cut.more
            plan = replace(plan, batches=batches, more=more)
            return plan if request.lag_only else self._late_rows.check_plan(fetch, table, request, plan, greatest)

    def may_have_late_records(self) -> bool:
        """Return True: applications may choose any value, or take one from a sequence long before they insert it."""
        return True

    def watch(
        self,
        partition: str,  # noqa: ARG002
        end: int,
        state: Mapping[str, Any],
        unread: FindUnreceipted | None = None,
    ) -> PlanningAlarm | None:
        """Return the signs of late rows that would make the next planning fail; see :meth:`WatchedSource.watch`.

        :param partition: id of the source's only partition
        :param end: end of the plan: all positions before it were planned
        :param state: state that the last planning stored
        :param unread: function that finds records without a receipt; None if receipts cannot be searched
        """
        with self._session() as fetch:
            table = self._table(fetch)
            greatest = greatest_position(fetch, table, self._cursor)
            return self._late_rows.watch(fetch, table, state, end, greatest, unread)

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return a digest of the positions that are visible now, for each range; see :meth:`Source.digests`."""
        with self._session() as fetch:
            table = self._table(fetch)
            return [_to_digest(fetch(PositionDigest.sql(*self._rows(table, span)), [])[0]) for span in ranges]

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Return the positions of the rows in a range that are visible now, in order; see :meth:`Source.positions`."""
        with self._session() as fetch:
            position, rows = self._rows(self._table(fetch), span)
            return [row[0] for row in fetch(f"SELECT {position} {rows} ORDER BY 1", [])]

    def _rows(self, table: Table, span: Range) -> tuple[str, str]:
        """Return two parts of a query of a range's rows: the SQL expression of the position, and FROM with WHERE."""
        kind, cursor = CursorKind(table.by_name[self._cursor].base_type), quote(self._cursor)
        low, high = value_sql(kind, span.start), value_sql(kind, span.end)
        return position_sql(kind, cursor), f"FROM {table.sql} WHERE {cursor} >= {low} AND {cursor} < {high}"

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """Return the same tasks with the table's oid in ``detail``, so that a reader refuses a recreated table."""
        with self._session() as fetch:
            oid = self._table(fetch).oid
            return [replace(task, detail={**task.detail, "oid": oid}) for task in tasks]

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @contextmanager
    def _session(self) -> Iterator[Fetch]:
        import psycopg2

        if self._client is None:
            self._client = open_psycopg(self._connection, f"ckpt-plan:{self._pipeline}", ErrorType.SOURCE, _SETTINGS)
        try:
            yield psycopg_fetch(self._client)
        except psycopg2.Error as error:
            lost = self._client.closed != 0
            self.close()
            raise to_exception(error_info(error, ErrorType.SOURCE, f"planning from {self._name}", lost=lost)) from error

    def _table(self, fetch: Fetch) -> Table:
        table = describe_table(fetch, self._name)
        if table is None:
            raise ConfigError(
                f"source table {self._name} does not exist in connection {self._connection.id!r}.",
                pipeline=self._pipeline,
                hint="Check source.table (schema.table, in the database's letter case) and the connection's database.",
            )
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

    def _columns(self, table: Table) -> Sequence[tuple[str, str]]:
        missing = [name for name in (*self._wanted, *self._key) if name not in table.by_name]
        if missing:
            raise ConfigError(
                f"source table {table.label} has no column {', '.join(missing)}.",
                pipeline=self._pipeline,
                hint=f"Its columns are: {', '.join(table.by_name)}.",
            )
        names = self._wanted or tuple(table.by_name)
        return [(name, SPARK_TYPES.get(table.by_name[name].base_type, "string")) for name in names]

    def _check_cursor(self, fetch: Fetch, table: Table) -> None:
        standby, readable = fetch(_STANDBY_AND_RIGHT, [table.oid])[0]
        if standby:
            raise ConfigError(
                f"the server of connection {self._connection.id!r} is a standby, which hides running transactions.",
                pipeline=self._pipeline,
                hint="Name a connection to the primary.",
            )
        if not readable:
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not read {table.label}.",
                pipeline=self._pipeline,
                hint=f"GRANT SELECT ON {table.sql} to it.",
            )
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

        If the newest candidate for the bound did not close in time, the plan's state contains it, and the next planning
        continues to wait for it. The greatest position is None if no range needs a bound, or the table is empty.
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
