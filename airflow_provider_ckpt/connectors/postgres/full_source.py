"""Planning side of the postgres source with ``mode: full``: the pages of one table, under one exported snapshot.

A position is the number of a page. The connection that exports the snapshot stays open until the source is closed, and
lanes import the snapshot, so that all batches of a refresh read the same rows. Its transaction locks the table against
TRUNCATE and other statements that rewrite pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    SNAPSHOT_APPLICATION,
    error_info,
    open_psycopg,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.row_security import refuse_row_security
from airflow_provider_ckpt.connectors.postgres.source_session import SourceSession
from airflow_provider_ckpt.connectors.postgres.table import (
    psycopg_fetch,
)
from airflow_provider_ckpt.connectors.source_plan import (
    Plan,
    PlannedBatch,
    PlanRequest,
    SourceFile,
)
from airflow_provider_ckpt.connectors.table_split import AUTO_BYTES, AUTO_RECORDS, batch_records
from airflow_provider_ckpt.connectors.whole_table_source import WholeTableSource
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.refresh import RefreshExtent
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_SETTINGS = {"default_transaction_read_only": "on"}
_SNAPSHOT_SETTINGS = {**_SETTINGS, "idle_in_transaction_session_timeout": "0", "statement_timeout": "0"}
"""Settings of the session that exports the snapshot: no timeout ends its transaction, which is idle while lanes read.
"""

_READABLE = """
SELECT pg_catalog.has_table_privilege({0}::oid, 'SELECT'),
       EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = {0}::oid)
"""
_EXPORT = "SELECT pg_catalog.pg_export_snapshot()"
_PAGES = """
SELECT pg_catalog.pg_relation_size({0}::oid) / pg_catalog.current_setting('block_size')::bigint
"""
_DENSITY = """
SELECT pg_catalog.pg_relation_size(oid) / pg_catalog.current_setting('block_size')::bigint,
       pg_catalog.pg_table_size(oid),
       CASE WHEN relpages > 0 AND reltuples >= 0 THEN reltuples / relpages END
FROM pg_catalog.pg_class WHERE oid = {0}::oid
"""
_GUESSED_ROWS_A_PAGE = 50
"""Number of rows that each page of a table is taken to have if the table was never analysed."""


class PostgresFullSource(WholeTableSource, SourceSession):
    """Source that reads a whole PostgreSQL table in each run.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.RefreshedSource`.

    :param pipeline: ``source.table`` names the table
    :param connection: the Airflow connection of the database
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        super().__init__(pipeline, connection, _SETTINGS)
        self._snapshot_client: Any = None
        self._snapshot: str | None = None

    def check(self) -> None:
        """Raise ConfigError if the table cannot be read page by page, or a column is unsuitable.

        The table must not be a view or have partitions or children, and this user must have the right to read all of
        it; row level security may hide rows only if the pipeline allows that. See :meth:`Source.check`.
        """
        with self._session() as fetch:
            table = self._table(fetch)
            self._columns(table)
            refuse_row_security(fetch, table, self._section, self._pipeline)
            readable, has_children = fetch(_READABLE, [table.oid])[0]
        if not readable:
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not read {table.label}.",
                pipeline=self._pipeline,
                hint=f"GRANT SELECT ON {table.sql} to it; mode: full needs the right to the whole table.",
            )
        if table.kind != "r" or has_children:
            raise ConfigError(
                f"{table.label} is a view, or has partitions or children, and mode: full reads the pages of one table.",
                pipeline=self._pipeline,
                hint="Name a table without partitions, or give source.cursor and leave source.mode out.",
            )

    def begin_refresh(self, partition: str) -> RefreshExtent:  # noqa: ARG002 - the table is the only partition
        """Export a snapshot, and return it with the number of the table's pages; see :class:`RefreshedSource`.

        The snapshot stands until the next call or :meth:`close`.

        :param partition: id of the partition, which is the table
        :raises SourceError: if the snapshot cannot be exported
        """
        import psycopg2

        self._close_snapshot()
        with self._session() as fetch:
            table = self._table(fetch)
        client = open_psycopg(
            self._connection, f"{SNAPSHOT_APPLICATION}{self._pipeline}", ErrorType.SOURCE, _SNAPSHOT_SETTINGS
        )
        try:
            with client.cursor() as cursor:
                cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute(f"LOCK TABLE {table.sql} IN ACCESS SHARE MODE")  # before the snapshot is taken
            fetch = psycopg_fetch(client)
            ((snapshot,),) = fetch(_EXPORT, [])
            ((pages,),) = fetch(_PAGES, [table.oid])
        except psycopg2.Error as error:
            client.close()
            raise to_exception(error_info(error, ErrorType.SOURCE, f"exporting a snapshot of {self._name}")) from error
        self._snapshot_client, self._snapshot = client, str(snapshot)
        return RefreshExtent(int(pages), self._snapshot, {"oid": table.oid})

    def holds_snapshot(self, snapshot: str) -> bool:
        """Return whether a snapshot is the one that :meth:`begin_refresh` of this object exported last.

        :param snapshot: id of the snapshot
        """
        return snapshot == self._snapshot

    def plan(self, request: PlanRequest) -> Plan:
        """Split ranges of pages into batches; see :meth:`Source.plan`.

        A range without an end gets no batches, since a refresh plans only the pages that its snapshot has. If the
        pipeline sets no number of records, a batch has about :data:`.AUTO_BYTES` bytes at most, including long values,
        which PostgreSQL stores outside of the table's pages.
        """
        batches: list[PlannedBatch] = []
        left = request.max_records
        with self._session() as fetch:
            pages_now, size, density = fetch(_DENSITY, [self._table(fetch).oid])[0]
        rows = max(float(density if density is not None else _GUESSED_ROWS_A_PAGE), 1.0)
        records_of_auto_bytes = int(AUTO_BYTES * pages_now * rows / max(size, 1))
        for todo in request.ranges:
            if todo.end is None:
                continue
            records = request.records_per_batch or batch_records(
                int(rows * pages_now), max(min(AUTO_RECORDS, records_of_auto_bytes), 1)
            )
            pages = max(int(records / rows), 1)
            for start in range(todo.start, todo.end, pages):
                if left <= 0:
                    return Plan(batches, more=True)
                span = Range(start, min(start + pages, todo.end))
                batches.append(PlannedBatch(todo.partition, span, max(int((span.end - span.start) * rows), 1)))
                left -= batches[-1].records or 1
        return Plan(batches)

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """Return the same tasks, each with the snapshot's id and the table's oid in its ``detail``, for the reader.

        :param tasks: batches to read
        :param files: not used
        :raises SourceError: if the snapshot has ended, as with a restart of the server
        """
        if not tasks:
            return []
        import psycopg2

        with self._session() as fetch:
            oid = self._table(fetch).oid
        try:
            if self._snapshot_client is None:
                raise psycopg2.InterfaceError("no snapshot is open")
            with self._snapshot_client.cursor() as cursor:
                cursor.execute("SELECT 1")
        except psycopg2.Error as error:
            self._close_snapshot()
            raise SourceError(
                f"the snapshot of {self._name} has ended: the connection that held it was lost.",
                pipeline=self._pipeline,
                recoverable=True,
                is_outage=True,
                hint="Nothing was published. Run again: the next run begins a new refresh.",
            ) from error
        return [replace(task, detail={**task.detail, "oid": oid, "snapshot": self._snapshot}) for task in tasks]

    def close(self) -> None:
        """Close the connections; the snapshot ends."""
        self._close_snapshot()
        super().close()

    def _close_snapshot(self) -> None:
        if self._snapshot_client is not None:
            self._snapshot_client.close()
            self._snapshot_client = self._snapshot = None
