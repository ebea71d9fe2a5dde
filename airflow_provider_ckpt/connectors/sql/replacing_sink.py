"""Control side of the sql sink with ``mode: replace``: staging tables, and the transaction that publishes them.

The transaction deletes the target's rows and inserts the staged ones; readers see the old rows until the commit. Where
a statement that creates or drops a table commits the open transaction, as in MySQL and MariaDB, such statements run in
a session of their own while another session keeps the fence locked, and the transaction that publishes has none.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.receipt_row import to_receipt
from airflow_provider_ckpt.connectors.refuse_fenced_run import refuse_unless_current
from airflow_provider_ckpt.connectors.sql.bookkeeping import RECEIPT, Bookkeeping
from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.fence import locked_epoch
from airflow_provider_ckpt.connectors.sql.names import split_name
from airflow_provider_ckpt.connectors.sql.receipt_claim import claim_receipt
from airflow_provider_ckpt.connectors.sql.sink import SqlSink
from airflow_provider_ckpt.connectors.sql.staging import drop_table, own_staging_tables, staging_table
from airflow_provider_ckpt.connectors.sql.table_clause import table_clause
from airflow_provider_ckpt.connectors.sql.target_checks import NO_RIGHT
from airflow_provider_ckpt.connectors.staged_rows import StagedRows, incomplete_error
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    import sqlalchemy as sa

log = logging.getLogger(__name__)


class SqlReplacingSink(SqlSink):
    """Control side of a sink that replaces all rows of a table; see :class:`~.sink_protocol.ReplacingSink`.

    Its parameters are those of :class:`.SqlSink`.
    """

    def check(self) -> None:
        """Raise ConfigError if the target is unsuitable, or if its rows cannot be replaced as a whole.

        Replacing fails, for example, if foreign keys refer to the target. See :meth:`SqlSink.check`.
        """
        super().check()
        with self._database.session(f"checking {self._name}") as connection:
            problem = self._database.dialect.replacement_problem(connection, self._target(connection))
        if problem:
            raise ConfigError(f"{problem[0]}.", pipeline=self._pipeline, hint=problem[1])

    def prepare_staging(self, epoch: int, generation: int, abandoned_from: int | None) -> None:  # noqa: ARG002
        """Drop the pipeline's staging tables of earlier refreshes and create a new one; see :class:`ReplacingSink`.

        :param epoch: epoch of the run
        :param generation: generation of the new refresh
        :param abandoned_from: has no effect, since a staging table never becomes a part of the target
        :raises FencedError: if the fence is at a newer epoch
        :raises ConfigError: if the connection's user may not create or drop tables beside the target
        """
        operation = f"creating a staging table beside {self._name}"
        with self._database.session(operation) as connection:
            target, bookkeeping = self._target(connection), self._bookkeeping(connection)
        with self._marked(epoch) as holder, holder.session(operation, writes=True) as fenced:
            found = locked_epoch(fenced, bookkeeping)
            refuse_unless_current(found, epoch, bookkeeping.place, self._pipeline)
            try:
                if holder.dialect.transactional_ddl:
                    self._renew_staging(fenced, target, epoch, generation)
                else:
                    with self._marked(epoch) as other, other.session(operation, writes=True) as connection:
                        self._renew_staging(connection, target, epoch, generation)
            except SinkError as error:
                if error.sqlstate != NO_RIGHT:
                    raise
                raise ConfigError(
                    f"the user of connection {self._database.known.id!r} may not create and drop staging tables in "
                    f"{bookkeeping.place}.",
                    pipeline=self._pipeline,
                    hint="Grant it CREATE and DROP there; mode: replace needs them.",
                ) from error

    def row_counts(self, key: BatchKey) -> tuple[int, int]:
        """Return the number of rows that the refresh's receipts count as staged, and the number of the target's rows.

        See :class:`ReplacingSink`.

        :param key: the batch that publishes the refresh
        """
        with self._database.session(f"counting the rows of {self._name}") as connection:
            target = self._target(connection)
            return self._staged(connection, self._bookkeeping(connection), key).count, _count(connection, target)

    def is_staged(self, key: BatchKey, rows_end: int) -> bool:
        """Return whether all rows of a refresh are in its staging table; see :class:`ReplacingSink`.

        The result is True if receipts cover all positions before ``rows_end``, and the staging table has the number of
        rows that these receipts count.

        :param key: the batch that publishes the refresh
        :param rows_end: end of the positions that contain rows
        """
        with self._database.session(f"counting the staged rows of {self._name}") as connection:
            staging = self._find_staging(connection, key.generation)
            if staging is None:
                return False
            rows = self._staged(connection, self._bookkeeping(connection), key)
            return rows.covers(rows_end) and _count(connection, staging) == rows.count

    def publish(self, task: BatchTask, epoch: int, limits: ReplaceLimits | None) -> Outcome:
        """Delete the target's rows and insert the staged ones; see :class:`ReplacingSink`.

        :param task: the batch that publishes
        :param epoch: epoch of the run
        :param limits: limits beyond which nothing is published; None if a user has approved the refresh
        :return: the outcome; ``not_attempted`` if a limit is exceeded, ``failed`` with the error if publishing failed
        """
        from sqlalchemy.exc import DBAPIError

        with self._database.session(f"describing {self._name}") as connection:
            target, bookkeeping = self._target(connection), self._bookkeeping(connection)
            staging = self._find_staging(connection, task.key.generation)
        with self._marked(epoch) as database:
            try:
                outcome = self._publish(database, target, staging, bookkeeping, task, epoch, limits)
            except DBAPIError as error:
                info = database.failed(error, f"publishing {task.key} to {self._name}")
                return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=info)
            except SinkError as error:
                return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error.info)
            database.roll_back()  # ends a transaction that has found the receipt of an earlier attempt
            if outcome.outcome is AttemptOutcome.DELIVERED and staging is not None:
                self._remove_published(database, staging, epoch)
        return outcome

    def _publish(
        self,
        database: Database,
        target: Table,
        staging: Table | None,
        bookkeeping: Bookkeeping,
        task: BatchTask,
        epoch: int,
        limits: ReplaceLimits | None,
    ) -> Outcome:
        """Publish a refresh in one transaction; the caller closes the connection, which rolls back an unfinished one.

        :param database: a connection of its own to the sink's database
        :param target: the target
        :param staging: the staging table of the refresh; None if it does not exist
        :param bookkeeping: the bookkeeping tables
        :param task: the batch that publishes
        :param epoch: epoch of the run
        :param limits: limits beyond which nothing is published; None if a user has approved the refresh
        :return: the outcome: published, the receipt that the batch has already, or ``not_attempted`` if a limit is
            exceeded
        """
        connection = database.connect(writes=True)
        at = database.dialect.server_time(connection)
        connection.rollback()
        receipt = Receipt(task.key, task.range, task.instruction.verdict, epoch, task.attempt, Counts(), at)
        database.dialect.begin_replacement(connection)
        existing = claim_receipt(connection, bookkeeping, receipt)
        if existing is not None:
            verdict = AttemptOutcome(existing.verdict.value)
            return Outcome(task.key, task.attempt, verdict, receipt=existing, receipt_existed=True)
        if task.instruction is Instruction.DELIVER and not self._replace_rows(
            connection, target, staging, bookkeeping, task, limits
        ):
            return Outcome(task.key, task.attempt, AttemptOutcome.NOT_ATTEMPTED)
        connection.commit()
        return Outcome(task.key, task.attempt, AttemptOutcome(receipt.verdict.value), receipt=receipt)

    def _replace_rows(
        self,
        connection: sa.Connection,
        target: Table,
        staging: Table | None,
        bookkeeping: Bookkeeping,
        task: BatchTask,
        limits: ReplaceLimits | None,
    ) -> bool:
        """Replace the target's rows by the staged ones in the open transaction, if all rows of the refresh are staged.

        The limits are compared with the number of rows that were deleted. The deletion must be the first statement that
        reads: under ``REPEATABLE READ``, an earlier query would fix a snapshot without rows that other sessions commit
        after it.

        :param connection: the connection, in a transaction that claimed the batch
        :param target: the target
        :param staging: the staging table of the refresh; None if it does not exist
        :param bookkeeping: the bookkeeping tables
        :param task: the batch that publishes
        :param limits: limits beyond which nothing is published; None if a user has approved the refresh
        :return: False if a limit is exceeded, and the transaction is to be rolled back
        :raises SinkError: if the staging table is gone, a range has no receipt, or the table or the target has another
            number of new rows than the receipts count; the target's may differ with ``sink.rows_may_differ: true``
        """
        import sqlalchemy as sa

        if staging is None:
            raise incomplete_error(task, "its staging table does not exist", self._pipeline)
        removed = connection.execute(table_clause(target, ()).delete()).rowcount
        rows = self._staged(connection, bookkeeping, task.key)
        rows.refuse_missing(task, self._pipeline)
        if limits is not None and limits.refusal_reason(rows.count, removed) is not None:
            return False
        names = [column.name for column in staging.columns if not column.generated]
        staged = sa.select(*table_clause(staging, names).c)
        taken = connection.execute(table_clause(target, names).insert().from_select(names, staged)).rowcount
        if taken != rows.count:
            rows.refuse_lost(task, _count(connection, staging), self._pipeline)
            if not self._section.may_store_other_rows:
                rows.refuse_other_rows(task, taken, self._name, self._pipeline)
        receipts = bookkeeping.table(RECEIPT)
        connection.execute(receipts.update().where(bookkeeping.of_batch(receipts, task.key)).values(added=taken))
        return True

    def _renew_staging(self, connection: sa.Connection, target: Table, epoch: int, generation: int) -> None:
        """Drop the pipeline's staging tables beside a target, and create that of a new refresh.

        :param connection: an open connection
        :param target: the target
        :param epoch: epoch of the run
        :param generation: generation of the refresh
        """
        dialect, context = self._database.dialect, replace(self._context, epoch=epoch)
        for name in own_staging_tables(connection, target.schema, context):
            drop_table(connection, dialect, target.schema, name, context)
        dialect.create_staging(connection, target, self._staging_name(generation))

    def _remove_published(self, database: Database, staging: Table, epoch: int) -> None:
        """Drop the staging table of a refresh that is published; if that fails, the next refresh drops it.

        :param database: a connection of its own to the sink's database
        :param staging: the staging table
        :param epoch: epoch of the run
        """
        context = replace(self._context, epoch=epoch)
        try:
            with database.session(f"dropping {staging.label}", writes=True) as connection:
                drop_table(connection, database.dialect, staging.schema, staging.name, context)
        except SinkError as error:
            message = error.message.removesuffix(".")
            log.warning("pipeline %s: %s. The next refresh drops the table.", self._pipeline, message)

    def _staging_name(self, generation: int) -> str:
        return staging_table(split_name(self._name)[1], generation, self._context)

    def _find_staging(self, connection: sa.Connection, generation: int) -> Table | None:
        schema, name = self._target(connection).schema, self._staging_name(generation)
        return self._database.dialect.find_table(connection, schema or None, name)

    def _staged(self, connection: sa.Connection, bookkeeping: Bookkeeping, key: BatchKey) -> StagedRows:
        """Return the receipts of the batches that have staged rows of a refresh, which count these rows.

        :param connection: an open connection
        :param bookkeeping: the bookkeeping tables
        :param key: the batch that publishes the refresh
        """
        table = bookkeeping.table(RECEIPT)
        of_refresh = (table.c.generation == key.generation) & (table.c.partition == key.partition)
        found = connection.execute(bookkeeping.receipts().where(of_refresh)).all()
        return StagedRows.of((to_receipt(tuple(row)) for row in found), key)


def _count(connection: sa.Connection, table: Table) -> int:
    import sqlalchemy as sa

    return int(connection.execute(sa.select(sa.func.count()).select_from(table_clause(table, ()))).scalar_one())
