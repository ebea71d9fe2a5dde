"""Writing side of the sql sink: write rows, dead letters and receipt of a batch in one transaction, in a lane."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_retries import store_dead_letters
from airflow_provider_ckpt.connectors.open_batch import OpenBatch
from airflow_provider_ckpt.connectors.refuse_fenced_run import naming_batch, refuse_if_fenced
from airflow_provider_ckpt.connectors.row_filter import exclude_rows
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Refused, SinkContext
from airflow_provider_ckpt.connectors.sql.bookkeeping import RECEIPT, Bookkeeping
from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.connector import SqlSinkSection
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.dead_letters import write_dead_letters
from airflow_provider_ckpt.connectors.sql.fence import fenced_epoch, session_mark
from airflow_provider_ckpt.connectors.sql.names import split_name
from airflow_provider_ckpt.connectors.sql.receipt_claim import claim_receipt
from airflow_provider_ckpt.connectors.sql.row_count import refuse_other_row_count
from airflow_provider_ckpt.connectors.sql.row_writer import RowWriter, Written
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, FencedError, SinkError
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.replay_content import may_overwrite
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError

    from airflow_provider_ckpt.config.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class _OpenBatch(OpenBatch):
    """A batch whose transaction is still open, with the number of rows that the target has taken.

    :param taken: number of rows that the server reports as written; a trigger may drop or add some of those sent
    """

    taken: int


class SqlWriter:
    """Writing side of the sql sink in one lane.

    See :class:`~airflow_provider_ckpt.connectors.sink_protocol.Writer`.

    :param pipeline: ``sink.table`` names the target
    :param connection: the Airflow connection of the database
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        section = SqlSinkSection.of(pipeline)
        self._pipeline = pipeline.name
        self._name = section.table
        self._key = section.key if section.upserts else ()
        self._rows_may_differ = section.rows_may_differ
        self._queue = pipeline.dead_letter_queue
        self._context = context
        self._database = Database(connection, "sink")
        self._clock = (datetime.min.replace(tzinfo=UTC), 0.0)
        self._targets: dict[tuple[str | None, str], Table] = {}
        self._unfinished: _OpenBatch | None = None

    @naming_batch
    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Claim the receipt, and write rows and dead letters, in one transaction; see :meth:`Writer.deliver`."""
        from sqlalchemy.exc import DBAPIError

        unfinished, self._unfinished = self._unfinished, None
        try:
            checked_counts(content, task, self._queue)
            if unfinished is not None and unfinished.is_continued_by(task, content):
                return self._complete(task, content, unfinished.receipt, unfinished.taken)
            if unfinished is not None:
                self._database.roll_back()
            return self._transaction(task, content)
        except FencedError:
            self._database.roll_back()
            raise
        except CkptError as error:
            self._database.roll_back()
            return _failed_outcome(task, error.info)
        except DBAPIError as error:
            return _failed_outcome(task, self._failed(error, task))
        except BaseException:  # the open transaction contains the claim, which the next batch would commit
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, whether it is alive or lost; an open transaction is rolled back."""
        self._unfinished = None
        self._targets.clear()
        self._database.close()

    def _transaction(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Claim the receipt, write the rows, and commit unless rows were refused.

        :param task: the batch and its attempt
        :param content: the batch's rows and dead letters
        :return: the outcome, with the existing receipt if the batch has one; or the errors of the refused rows
        """
        connection, target = self._connect(task)
        bookkeeping = self._bookkeeping(target)
        counts = checked_counts(content, task, self._queue)
        receipt = Receipt(
            task.key, task.range, task.instruction.verdict, self._context.epoch, task.attempt, counts, self._now(),
            task.bound, content.positions,
        )  # fmt: skip
        existing = claim_receipt(connection, bookkeeping, receipt)
        if existing is not None:
            return Outcome(
                task.key, task.attempt, AttemptOutcome(existing.verdict.value), receipt=existing, receipt_existed=True
            )
        written = self._write(connection, target, task, content.rows)
        if not self._rows_may_differ:
            refuse_other_row_count(written, target, task.key)
        if not written.refused:
            return self._complete(task, content, receipt, written.taken)
        if self._queue.in_other_store:
            self._database.roll_back()
        else:
            accepted = exclude_rows(content.rows.select([ROW_NUMBER]), written.refused)
            self._unfinished = _OpenBatch(task, receipt, accepted.column(ROW_NUMBER), written.taken)
        return Refused(written.refused)

    def _write(self, connection: sa.Connection, target: Table, task: BatchTask, rows: pa.Table) -> Written:
        if not rows.num_rows:
            return Written()
        key = self._key if may_overwrite(task.key) else ()
        return RowWriter(connection, self._database.dialect, target, key, self._queue.enabled).write(rows)

    def _complete(self, task: BatchTask, content: BatchContent, receipt: Receipt, taken: int) -> Outcome:
        """Write the dead letters and commit, after the receipt was claimed and the rows were written.

        :param task: the batch
        :param content: the batch's content without refused rows
        :param receipt: the receipt as it was claimed; its counts are corrected if rows were refused
        :param taken: number of rows that the server reports as written; a trigger may drop or add some of those sent
        """
        connection, target = self._connect(task)
        bookkeeping = self._bookkeeping(target)
        table = bookkeeping.table(RECEIPT)
        counts, dead_letters = checked_counts(content, task, self._queue), content.dead_letters
        changed: dict[str, int] = {"added": taken} if self._rows_may_differ else {}
        if counts != receipt.counts:
            changed |= {name: getattr(counts, name) for name in ("delivered", "filtered", "dead_lettered")}
            receipt = replace(receipt, counts=counts)
        if changed:
            connection.execute(table.update().where(bookkeeping.of_batch(table, task.key)).values(changed))
        if dead_letters:
            write = partial(write_dead_letters, connection, bookkeeping, task, dead_letters)
            store_dead_letters(write, dead_letters, task, self._queue)
        connection.commit()
        types = Counter(dead_letter.error.type.value for dead_letter in dead_letters)
        outcome = AttemptOutcome(receipt.verdict.value)
        return Outcome(task.key, task.attempt, outcome, receipt=receipt, dead_letters=dict(types))

    def _place(self, task: BatchTask) -> tuple[str | None, str]:  # noqa: ARG002
        """Return schema and name of the table to which a batch is written; the schema is None for the default.

        :param task: the batch
        """
        return split_name(self._name)

    def _connect(self, task: BatchTask) -> tuple[sa.Connection, Table]:
        """Return the connection, after opening it if it is not open, and the table to which a batch is written.

        :param task: the batch
        :raises SinkError: if the table does not exist
        """
        place, dialect = self._place(task), self._database.dialect
        if not self._database.is_open:
            self._targets.clear()
        connection = self._database.connect(writes=True)
        if not self._targets:
            dialect.mark_session(connection, session_mark(self._context, self._context.epoch))
            self._clock = (dialect.server_time(connection), time.monotonic())
        if place not in self._targets:
            found = dialect.find_table(connection, *place)
            connection.rollback()
            if found is None:
                raise SinkError(
                    f"target table {'.'.join(filter(None, place))} does not exist in connection "
                    f"{self._database.known.id!r}.",
                    sqlstate="42P01",
                    hint="It existed when the run began; create it again and start a new run.",
                )
            self._targets[place] = found
        return connection, self._targets[place]

    def _bookkeeping(self, target: Table) -> Bookkeeping:
        return Bookkeeping(self._database.dialect, target.schema, self._context)

    def _now(self) -> datetime:
        """Return the server's present time: its time when the connection was opened, plus the time passed since."""
        server_time, at = self._clock
        return server_time + timedelta(seconds=time.monotonic() - at)

    def _failed(self, error: DBAPIError, task: BatchTask) -> ErrorInfo:
        """Roll back and return the error information; if the connection is lost, check whether a newer run ended it.

        :param error: the exception
        :param task: the batch that was being delivered
        :raises FencedError: if the fence has a newer epoch than this writer
        """
        from sqlalchemy.exc import DBAPIError

        operation = f"delivering {task.key} {task.range} to {self._name}"
        info = self._database.failed(error, operation)
        if self._database.is_open:
            return info
        try:
            connection, target = self._connect(task)
            bookkeeping = self._bookkeeping(target)
            fenced = fenced_epoch(connection, bookkeeping)
            connection.rollback()
        except CkptError as unreachable:
            return unreachable.info
        except DBAPIError as again:
            return self._database.failed(again, operation)
        refuse_if_fenced(fenced, self._context.epoch, bookkeeping.place, self._pipeline)
        return replace(info, is_outage=False)


def _failed_outcome(task: BatchTask, error: ErrorInfo) -> Outcome:
    return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error)
