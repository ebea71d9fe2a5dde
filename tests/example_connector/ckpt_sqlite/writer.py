"""Writing side of the sink: rows, dead letters and receipt of a batch in one transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import BatchContent, record_error
from airflow_provider_ckpt.connectors.refuse_fenced_run import naming_batch, refuse_unless_current
from airflow_provider_ckpt.connectors.sink_protocol import Refused, SinkContext
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType, FencedError
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from ckpt_sqlite.bookkeeping import Bookkeeping
from ckpt_sqlite.connector import SqliteSinkSection
from ckpt_sqlite.database import open_file, quote, transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.connection import Connection


class _RowsRefusedError(Exception):
    """Rolls the transaction back, with the errors of the refused rows by row number."""

    def __init__(self, errors: dict[int, ErrorInfo]) -> None:
        super().__init__(errors)
        self.errors = errors


class SqliteWriter:
    """Writer of one lane.

    :param pipeline: the pipeline
    :param connection: not used
    :param context: ids of ledger and pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._keys = SqliteSinkSection.of(pipeline)
        self._queue = pipeline.dead_letter_queue
        self._context = context
        self._opened: sqlite3.Connection | None = None

    @naming_batch
    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Write the batch and its receipt; a batch that has a receipt is not written again."""
        try:
            database = self._database
            with transaction(database):
                return self._deliver(task, content, database)
        except _RowsRefusedError as refused:
            return Refused(refused.errors)
        except FencedError:
            raise
        except CkptError as error:
            info = error.info
        except sqlite3.Error as error:
            transient = isinstance(error, sqlite3.OperationalError)  # locked, full, or not readable at the moment
            message = f"delivering {task.key} {task.range} to {self._keys.table}: {error}"
            info = ErrorInfo(ErrorType.SINK, message, transient, is_outage=transient)
        return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=info)

    def close(self) -> None:
        """Close the file; SQLite rolls back an open transaction."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _deliver(self, task: BatchTask, content: BatchContent, database: sqlite3.Connection) -> Outcome:
        """Deliver in a transaction that holds the write lock: neither fence nor receipts can change meanwhile."""
        bookkeeping, epoch = Bookkeeping(database, self._context), self._context.epoch
        counts = checked_counts(content, task, self._queue)
        refuse_unless_current(bookkeeping.epoch(), epoch, self._keys.path, self._context.pipeline)
        existing = bookkeeping.receipt(task.key)
        if existing is not None:
            outcome = AttemptOutcome(existing.verdict.value)
            return Outcome(task.key, task.attempt, outcome, receipt=existing, receipt_existed=True)
        refused = self._insert(content.rows, database)
        if refused:
            raise _RowsRefusedError(refused)
        at = datetime.now(UTC)
        bookkeeping.store_dead_letters(task, content.dead_letters, at)
        verdict = task.instruction.verdict
        receipt = Receipt(task.key, task.range, verdict, epoch, task.attempt, counts, at, task.bound, content.positions)
        bookkeeping.store_receipt(receipt)
        types = Counter(letter.error.type.value for letter in content.dead_letters)
        return Outcome(task.key, task.attempt, AttemptOutcome(verdict.value), receipt=receipt, dead_letters=dict(types))

    def _insert(self, rows: pa.Table, database: sqlite3.Connection) -> dict[int, ErrorInfo]:
        """Insert rows, and return the errors of those that the table refuses, by row number."""
        _, *names = rows.column_names
        columns = ", ".join(map(quote, names))
        sql = f"INSERT INTO {quote(self._keys.table)} ({columns}) VALUES ({', '.join('?' * len(names))})"
        errors = {}
        for number, *values in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            try:
                database.execute(sql, values)
            except (sqlite3.IntegrityError, sqlite3.ProgrammingError) as error:  # a constraint; a type of value
                errors[number] = record_error(ErrorType.SINK, f"{self._keys.table}: {error}")
        return errors

    @property
    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = open_file(self._keys.path, "sink.path")
        return self._opened
