"""Control side of the postgres sink with ``mode: replace``: staging tables, and the transaction that publishes them.

The transaction deletes the target's rows and inserts the staged ones, so views, grants and foreign keys remain, and
readers see the old rows until the commit. TRUNCATE would be faster, but transactions that began before it would see an
empty table.
"""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import UTC
from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import error_info, literal, open_psycopg, quote
from airflow_provider_ckpt.connectors.postgres.durability import SET_DURABLE_COMMIT
from airflow_provider_ckpt.connectors.postgres.fence import fenced_epoch, session_prefix
from airflow_provider_ckpt.connectors.postgres.receipt_claim import claim_script
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.row_writer import CHECK_CONSTRAINTS
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.postgres.staging import create_staging, own_staging_tables, staging_sql
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table, psycopg_fetch
from airflow_provider_ckpt.connectors.receipt_row import to_receipt
from airflow_provider_ckpt.connectors.refuse_fenced_run import refuse_unless_current, wrong_epoch_error
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.staged_rows import StagedRows
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, SinkError
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

log = logging.getLogger(__name__)

_LOCK_TIMEOUT = "10s"
"""Time for which dropping a staging table waits for sessions that read it, such as that of a backup."""

_MAY_CREATE = "SELECT pg_catalog.has_schema_privilege({0}::text, 'CREATE'), pg_catalog.row_security_active({1}::oid)"


class PostgresReplacingSink(PostgresSink):
    """Control side of a sink that replaces all rows of a table; see :class:`~.sink_protocol.ReplacingSink`.

    Its parameters are those of :class:`.PostgresSink`.
    """

    def check(self) -> None:
        """Raise ConfigError if the target is unsuitable, or staging tables cannot be created beside it.

        A target is unsuitable, among other reasons, if row level security applies to it, which may hide rows.
        """
        super().check()
        with self._session("checking the rights") as fetch, self._target_to_write(fetch) as table:
            [(may_create, row_security)] = fetch(_MAY_CREATE, [table.schema, table.oid])
        if not may_create:
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not create staging tables beside {table.label}.",
                pipeline=self._pipeline,
                hint=f"GRANT CREATE ON SCHEMA {quote(table.schema)} to it; mode: replace needs it.",
            )
        if row_security:
            raise ConfigError(
                f"policies of row level security apply to {table.label}, so not all of its rows can be replaced.",
                pipeline=self._pipeline,
                hint="Name a connection whose user owns the table or has BYPASSRLS.",
            )

    def prepare_staging(self, epoch: int, generation: int, abandoned_from: int | None) -> None:  # noqa: ARG002
        """Drop the pipeline's staging tables of earlier refreshes and create a new one; see :class:`ReplacingSink`.

        A table that another session reads for longer than 10 s stays, and a later refresh drops it.

        :param epoch: epoch of the run
        :param generation: generation of the new refresh
        :param abandoned_from: has no effect, since a staging table never becomes a part of the target
        :raises FencedError: if the fence is at a newer epoch
        """
        with self._session("creating a staging table") as fetch:
            target = self._target(fetch)
            bookkeeping = BookkeepingTables(target.schema)
            fetch(f"BEGIN; SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'; SELECT 1", [])
            rows = fetch(bookkeeping.lock_fence, [self._context.ledger, self._context.pipeline])
            fenced = int(rows[0][0]) if rows else 0
            if fenced == epoch:
                for name in own_staging_tables(fetch, target, self._context):
                    self._drop_unless_locked(fetch, name)
                self._create_staging(fetch, target, generation)
            fetch("COMMIT; SELECT 1", [])
            refuse_unless_current(fenced, epoch, bookkeeping.place, self._pipeline)

    def _create_staging(self, fetch: Fetch, target: Table, generation: int) -> None:
        """Create the staging table of a refresh in the open transaction.

        :param fetch: runs a statement and returns its rows
        :param target: the target
        :param generation: generation of the refresh
        """
        fetch(f"{create_staging(target, generation, self._context)}; SELECT 1", [])

    def row_counts(self, key: BatchKey) -> tuple[int, int]:
        """Return the number of staged rows, as the receipts count them, and the number of rows in the target.

        See :class:`ReplacingSink`.

        :param key: the batch that publishes the refresh
        """
        with self._session("counting the rows") as fetch:
            target = self._target(fetch)
            return self._staged(fetch, key, target).count, count_rows(fetch, target.sql)

    def is_staged(self, key: BatchKey, rows_end: int) -> bool:
        """Return whether all rows of a refresh are in its staging table; see :class:`ReplacingSink`.

        The result is True if receipts cover all positions before ``rows_end``, and the staging table has the number of
        rows that these receipts count.

        :param key: the batch that publishes the refresh
        :param rows_end: position after the last one that may contain rows
        """
        with self._session("counting the staged rows") as fetch:
            target = self._target(fetch)
            staging = staging_sql(target, key.generation)
            if staging not in own_staging_tables(fetch, target, self._context):
                return False
            rows = self._staged(fetch, key, target)
            return rows.covers(rows_end) and count_rows(fetch, staging) == rows.count

    def publish(self, task: BatchTask, epoch: int, limits: ReplaceLimits | None) -> Outcome:
        """Delete the target's rows and insert the staged ones; see :class:`ReplacingSink`.

        :param task: the batch that publishes
        :param epoch: epoch of the run
        :param limits: limits beyond which nothing is published; None if a user has approved the refresh
        """
        import psycopg2

        with self._session("describing the columns") as fetch:
            target = self._target(fetch)
        context = SinkContext(self._context.ledger, self._context.pipeline, epoch)
        operation = f"publishing {task.key} to {self._name}"
        client = open_psycopg(self._connection, f"{session_prefix(context)}{epoch}", ErrorType.SINK)
        with closing(client):
            try:
                outcome = self._publish(client, target, task, context, limits)
            except psycopg2.Error as error:
                info = error_info(error, ErrorType.SINK, operation, lost=client.closed != 0)
                return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=info)
            except SinkError as error:
                return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error.info)
            if outcome.outcome is AttemptOutcome.DELIVERED:
                self._drop_published(client, staging_sql(target, task.key.generation))
        return outcome

    def _publish(
        self, client: Any, target: Table, task: BatchTask, context: SinkContext, limits: ReplaceLimits | None
    ) -> Outcome:
        """Publish a refresh in one transaction; the caller closes the session, which rolls back an unfinished one.

        :param client: psycopg2 connection in autocommit mode
        :param target: the target
        :param task: the batch that publishes
        :param context: ids of the ledger and the pipeline, and the epoch of the run
        :param limits: limits beyond which nothing is published; None for no limit
        :return: the outcome; ``not_attempted`` if a limit is exceeded
        """
        fetch = psycopg_fetch(client)
        bookkeeping = BookkeepingTables(target.schema)
        [(now,)] = fetch("SELECT pg_catalog.clock_timestamp()", [])
        receipt = Receipt(
            task.key, task.range, task.instruction.verdict, context.epoch, task.attempt, Counts(), now.astimezone(UTC)
        )
        existing = self._claim(client, receipt, context, bookkeeping)
        if existing is not None:
            verdict = AttemptOutcome(existing.verdict.value)
            return Outcome(task.key, task.attempt, verdict, receipt=existing, receipt_existed=True)
        if task.instruction is Instruction.DELIVER and not self._replace_rows(
            client, target, task, bookkeeping, limits
        ):
            return Outcome(task.key, task.attempt, AttemptOutcome.NOT_ATTEMPTED)
        with client.cursor() as cursor:
            cursor.execute("COMMIT")
        return Outcome(task.key, task.attempt, AttemptOutcome(receipt.verdict.value), receipt=receipt)

    def _claim(
        self, client: Any, receipt: Receipt, context: SinkContext, bookkeeping: BookkeepingTables
    ) -> Receipt | None:
        """Begin a transaction and claim the receipt; return None if that succeeds.

        If the batch has a receipt already, roll the transaction back and return that receipt.

        :param client: psycopg2 connection in autocommit mode
        :param receipt: the receipt to claim
        :param context: ids of the ledger and the pipeline, and the epoch of the run
        :param bookkeeping: the bookkeeping tables
        :raises FencedError: if the fence has a newer epoch
        :raises SinkError: if the fence is absent or has an older epoch
        """
        from psycopg2 import errors

        key = receipt.key
        try:
            with client.cursor() as cursor:
                cursor.execute(claim_script(receipt, context, bookkeeping, SET_DURABLE_COMMIT))
            return None
        except errors.UniqueViolation:
            _roll_back(client)
            values = [context.ledger, context.pipeline, key.generation, key.partition, key.seq]
            return to_receipt(psycopg_fetch(client)(bookkeeping.receipt, values)[0])
        except errors.NotNullViolation as error:
            _roll_back(client)
            fenced = fenced_epoch(psycopg_fetch(client), bookkeeping, context)
            raise wrong_epoch_error(fenced, context.epoch, bookkeeping.place, context.pipeline) from error

    def _replace_rows(
        self,
        client: Any,
        target: Table,
        task: BatchTask,
        bookkeeping: BookkeepingTables,
        limits: ReplaceLimits | None,
    ) -> bool:
        """Replace the target's rows by the staged ones in the open transaction, if all rows of the refresh are staged.

        :param client: psycopg2 connection in an open transaction
        :param target: the target
        :param task: the batch that publishes
        :param bookkeeping: the bookkeeping tables
        :param limits: limits beyond which the rows must not be replaced; None for no limit
        :return: False if a limit is exceeded, and the caller must roll the transaction back; otherwise True
        :raises SinkError: if a range has no receipt, or the numbers of rows differ from those of the receipts
        """
        fetch = psycopg_fetch(client)
        staging = staging_sql(target, task.key.generation)
        with client.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {target.sql} IN SHARE ROW EXCLUSIVE MODE")
            rows = self._staged(fetch, task.key, target)
            rows.refuse_missing(task, self._pipeline)
            cursor.execute(f"DELETE FROM {target.sql}")
            if limits is not None and limits.refusal_reason(rows.count, cursor.rowcount) is not None:
                return False
            names = ", ".join(quote(column.name) for column in target.columns if not column.generated)
            cursor.execute(f"INSERT INTO {target.sql} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM {staging}")
            if cursor.rowcount != rows.count:
                rows.refuse_lost(task, count_rows(fetch, staging), self._pipeline)
            cursor.execute(CHECK_CONSTRAINTS)
            present = count_rows(fetch, target.sql)
            if not self._declared.sink.may_store_other_rows:
                rows.refuse_other_rows(task, present, self._name, self._pipeline)
            store_added(client, bookkeeping, self._context, task.key, present)
        return True

    def _drop_unless_locked(self, fetch: Fetch, staging: str) -> None:
        """Drop a staging table in the open transaction, unless another session keeps the table locked for 10 s.

        :param fetch: runs a statement and returns its rows
        :param staging: schema and name of the table as SQL
        """
        from psycopg2 import errors

        fetch("SAVEPOINT ckpt_drop; SELECT 1", [])
        try:
            fetch(f"DROP TABLE {staging}; SELECT 1", [])
        except errors.LockNotAvailable as error:
            fetch("ROLLBACK TO SAVEPOINT ckpt_drop; SELECT 1", [])
            self._warn_not_dropped(staging, error)

    def _drop_published(self, client: Any, staging: str) -> None:
        """Drop the staging table of a refresh that is published; if that fails, the next refresh drops it.

        The publication is committed before, so that the target is not locked while a session reads the staging table.

        :param client: psycopg2 connection in autocommit mode, outside of any transaction
        :param staging: schema and name of the table as SQL
        """
        import psycopg2

        try:
            with client.cursor() as cursor:
                cursor.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'; DROP TABLE IF EXISTS {staging}")
        except psycopg2.Error as error:
            self._warn_not_dropped(staging, error)

    def _warn_not_dropped(self, staging: str, error: Exception) -> None:
        message = error_info(error, ErrorType.SINK, f"dropping {staging}").message
        log.warning("pipeline %s: %s. The next refresh drops the table.", self._pipeline, message)

    def _staged(self, fetch: Fetch, key: BatchKey, target: Table) -> StagedRows:
        """Return the rows that a refresh has staged according to its receipts, as positions and a number of rows.

        :param fetch: runs a query and returns its rows
        :param key: the batch that publishes the refresh
        :param target: the target
        """
        values = [self._context.ledger, self._context.pipeline, key.generation, key.partition]
        rows = fetch(BookkeepingTables(target.schema).receipts_of_generation, values)
        return StagedRows.of(map(to_receipt, rows), key)


def store_added(client: Any, bookkeeping: BookkeepingTables, context: SinkContext, key: BatchKey, rows: int) -> None:
    """Store in a receipt, in the transaction that claimed it, how many rows the batch has added to the target.

    :param client: psycopg2 connection in that transaction
    :param bookkeeping: the bookkeeping tables
    :param context: ids of the ledger and the pipeline
    :param key: the batch
    :param rows: the number
    """
    values = map(literal, [context.ledger, context.pipeline, *key.to_json()])
    with client.cursor() as cursor:
        cursor.execute(bookkeeping.store_added(str(rows)).format(*values))


def count_rows(fetch: Fetch, table: str) -> int:
    """Return the number of rows of a table.

    :param fetch: runs a query and returns its rows
    :param table: schema and name of the table as SQL
    """
    return int(fetch(f"SELECT count(*) FROM {table}", [])[0][0])


def _roll_back(client: Any) -> None:
    with client.cursor() as cursor:
        cursor.execute("ROLLBACK")
