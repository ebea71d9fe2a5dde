"""Writing side of the postgres sink: write a batch's receipt, rows and dead letters in one transaction.

A lane has one ADBC connection in autocommit mode. Transactions are begun by a statement, because the driver's own
transactions cannot return to a savepoint after a failed COPY.

If the target refuses rows, the transaction stays open with the accepted rows, and the next call of
:meth:`PostgresWriter.deliver` completes it. If dead letters are stored outside the sink, the transaction is rolled back
instead, since storing the dead letters might wait for a lock of this transaction.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_retries import store_dead_letters
from airflow_provider_ckpt.connectors.open_batch import OpenBatch
from airflow_provider_ckpt.connectors.postgres.bad_row_isolation import IsolatingRowWriter, write_good_rows
from airflow_provider_ckpt.connectors.postgres.client import error_info, literal, open_adbc, require_connection
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSinkSection
from airflow_provider_ckpt.connectors.postgres.dead_letters import write_dead_letters
from airflow_provider_ckpt.connectors.postgres.durability import SET_DURABLE_COMMIT
from airflow_provider_ckpt.connectors.postgres.fence import fenced_epoch, session_prefix
from airflow_provider_ckpt.connectors.postgres.receipt_claim import begin_with_claim
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.row_count import ROWS_DIFFER
from airflow_provider_ckpt.connectors.postgres.row_errors import may_be_of_rows
from airflow_provider_ckpt.connectors.postgres.row_writer import CHECK_CONSTRAINTS
from airflow_provider_ckpt.connectors.postgres.table import adbc_fetch
from airflow_provider_ckpt.connectors.postgres.target_rules import TargetDescription, describe_target
from airflow_provider_ckpt.connectors.receipt_row import to_receipt
from airflow_provider_ckpt.connectors.refuse_fenced_run import naming_batch, refuse_if_fenced
from airflow_provider_ckpt.connectors.row_filter import exclude_rows
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Refused, SinkContext
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import (
    CkptError,
    ErrorInfo,
    ErrorType,
    FencedError,
    SinkError,
)
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.replay_content import may_overwrite
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline

    _Send = Callable[[pa.Table], Mapping[int, ErrorInfo]]

_DIFFER_HINT = (
    "A trigger of the target drops or adds rows. Change the trigger or, if this is intended, write "
    "sink.rows_may_differ: true."
)


class PostgresWriter:
    """Writing side of the postgres sink in one lane.

    See :class:`~airflow_provider_ckpt.connectors.sink_protocol.Writer`.

    :param pipeline: ``sink.table`` names the target
    :param connection: the Airflow connection of the database
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        sink = PostgresSinkSection.of(pipeline)
        self._pipeline = pipeline.name
        self._name = sink.table
        self._key = sink.key if sink.upserts else ()
        self._rows_may_differ = sink.rows_may_differ
        self._queue = pipeline.dead_letter_queue
        self._connection = require_connection(connection, "sink")
        self._context = context
        self._client: Any = None
        self._cursor: Any = None
        self._clock = (datetime.min.replace(tzinfo=UTC), 0.0)
        self._target: TargetDescription | None = None
        self._table = self._name
        self._senders: dict[tuple[pa.Schema, bool], IsolatingRowWriter] = {}
        self._unfinished: OpenBatch | None = None

    @naming_batch
    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Claim the receipt, and write rows and dead letters, in one transaction; see :meth:`Writer.deliver`."""
        from adbc_driver_manager import Error

        unfinished, self._unfinished = self._unfinished, None
        self._use_target(self._target_name(task))
        try:
            checked_counts(content, task, self._queue)
            if unfinished is not None and unfinished.is_continued_by(task, content):
                return self._complete(task, content, unfinished.receipt)
            if unfinished is not None:
                self._execute("ROLLBACK")
            return self._transaction(task, content)
        except FencedError:
            self._roll_back()
            raise
        except CkptError as error:
            self._roll_back()
            return _failed_outcome(task, error.info)
        except Error as error:
            return _failed_outcome(
                task, self._to_error_info(error, f"delivering {task.key} {task.range} to {self._name}")
            )
        except BaseException:  # the open transaction contains the claim, which the next batch would commit
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, whether it is alive or lost."""
        opened, cursor = self._client, self._cursor
        self._client = self._cursor = self._target = self._unfinished = None
        self._senders.clear()
        if opened is not None:
            with closing(opened), closing(cursor):
                pass

    def _target_name(self, task: BatchTask) -> str:  # noqa: ARG002 - all batches go to one table
        """Return the name of the table to which the rows of a batch are written, such as ``shop.orders``.

        :param task: the batch
        """
        return self._name

    def _use_target(self, name: str) -> None:
        """Select the table to which the next batches are written, and forget the description of another table.

        :param name: name of the table, such as ``shop.orders``
        """
        if name != self._table:
            self._table, self._target = name, None
            self._senders.clear()

    def _transaction(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Deliver a batch with all rows at once; if the target refuses some rows, deliver it again without them.

        :param task: the batch and its attempt
        :param content: the batch's rows and dead letters
        :return: the outcome, or the errors of the refused rows
        """
        import pyarrow as pa
        from adbc_driver_manager import Error

        try:
            return self._attempt(task, content, partial(self._send_at_once, task))
        except pa.ArrowInvalid:
            send = self._without_bad_records(task, cast=True)
        except Error as error:
            if not may_be_of_rows(error):
                raise
            send = self._without_bad_records(task, cast=False)
        self._execute("ROLLBACK")
        return self._attempt(task, content, send)

    def _attempt(self, task: BatchTask, content: BatchContent, send: _Send) -> Outcome | Refused:
        """Claim the receipt, send the rows, and commit unless rows were refused.

        :param task: the batch and its attempt
        :param content: the batch's rows and dead letters
        :param send: function that writes the rows in the open transaction, and returns the errors of refused rows by
            row number
        :return: the outcome, with the existing receipt if the batch has one already; or the errors of refused rows,
            with the transaction left open, or rolled back if dead letters are stored outside the sink
        """
        bookkeeping = BookkeepingTables(self._connect().table.schema)
        counts = checked_counts(content, task, self._queue)
        receipt = Receipt(
            task.key, task.range, task.instruction.verdict, self._context.epoch, task.attempt, counts, self._now(),
            task.bound, content.positions,
        )  # fmt: skip
        count = self._connect().row_count(upsert=self._is_keyed(task))
        settings = f"{SET_DURABLE_COMMIT}, {count.start(content.rows.num_rows)}"
        if not begin_with_claim(receipt, self._context, bookkeeping, self._cursor, settings):
            return self._existing_outcome(task, bookkeeping)
        refused = send(content.rows) if content.rows.num_rows else {}
        if not refused:
            return self._complete(task, content, receipt)
        if self._queue.in_other_store:
            self._execute("ROLLBACK")
        else:
            accepted = exclude_rows(content.rows.select([ROW_NUMBER]), refused)
            self._unfinished = OpenBatch(task, receipt, accepted.column(ROW_NUMBER))
        return Refused(refused)

    def _complete(self, task: BatchTask, content: BatchContent, receipt: Receipt) -> Outcome:
        """Write the dead letters and commit, after the receipt was claimed and the rows were written.

        :param task: the batch
        :param content: the batch's content without refused rows
        :param receipt: the receipt as it was claimed; its counts are corrected if rows were refused
        """
        bookkeeping = BookkeepingTables(self._connect().table.schema)
        counts, dead_letters = checked_counts(content, task, self._queue), content.dead_letters
        if counts != receipt.counts:
            changed = [counts.delivered, counts.filtered, counts.dead_lettered]
            adbc_fetch(self._cursor)(bookkeeping.update_counts, [*self._batch_key(task), *changed])
            receipt = replace(receipt, counts=counts)
        if dead_letters:
            write = partial(write_dead_letters, self._cursor, task, self._context, dead_letters, bookkeeping)
            store_dead_letters(write, dead_letters, task, self._queue)
        self._execute(f"{CHECK_CONSTRAINTS}; {self._row_count_statement(task, bookkeeping)}; COMMIT")
        types = Counter(dead_letter.error.type.value for dead_letter in dead_letters)
        outcome = AttemptOutcome(receipt.verdict.value)
        return Outcome(task.key, task.attempt, outcome, receipt=receipt, dead_letters=dict(types))

    def _row_count_statement(self, task: BatchTask, bookkeeping: BookkeepingTables) -> str:
        """Return the SQL statement that fails unless the target gained exactly the rows that were sent.

        With ``sink.rows_may_differ: true``, the statement only stores the number of added rows in the receipt.

        :param task: the batch
        :param bookkeeping: the bookkeeping tables
        """
        count = self._connect().row_count(upsert=self._is_keyed(task))
        if not self._rows_may_differ:
            return count.check
        return bookkeeping.store_added(count.added).format(*map(literal, self._batch_key(task)))

    def _is_keyed(self, task: BatchTask) -> bool:
        """Return whether a batch replaces rows of the target by key.

        The result is False for a batch that replays dead letters (:func:`.may_overwrite`): a record whose key exists in
        the target is then refused.

        :param task: the batch
        """
        return bool(self._key) and may_overwrite(task.key)

    def _now(self) -> datetime:
        """Return the server's present time: its time when the connection was opened, plus the time passed since."""
        server_time, at = self._clock
        return server_time + timedelta(seconds=time.monotonic() - at)

    def _batch_key(self, task: BatchTask) -> list[Any]:
        return [self._context.ledger, self._context.pipeline, task.key.generation, task.key.partition, task.key.seq]

    def _existing_outcome(self, task: BatchTask, bookkeeping: BookkeepingTables) -> Outcome:
        self._execute("ROLLBACK")
        receipt = to_receipt(adbc_fetch(self._cursor)(bookkeeping.receipt, self._batch_key(task))[0])
        return Outcome(
            task.key, task.attempt, AttemptOutcome(receipt.verdict.value), receipt=receipt, receipt_existed=True
        )

    def _sender(self, task: BatchTask, rows: pa.Table) -> IsolatingRowWriter:
        keyed = self._is_keyed(task)
        if (rows.schema, keyed) not in self._senders:
            target = self._connect()
            self._senders[rows.schema, keyed] = IsolatingRowWriter(
                self._cursor,
                target.table,
                rows.schema,
                target.key if keyed else (),
                target.row_count(upsert=keyed),
                direct=not target.behaviour.inserts_only,
                may_show_values=self._queue.enabled,
            )
        return self._senders[rows.schema, keyed]

    def _send_at_once(self, task: BatchTask, rows: pa.Table) -> Mapping[int, ErrorInfo]:
        self._sender(task, rows).write(rows)
        return {}

    def _without_bad_records(self, task: BatchTask, *, cast: bool) -> _Send:
        def send(rows: pa.Table) -> Mapping[int, ErrorInfo]:
            return write_good_rows(rows, self._sender(task, rows), self._execute, cast=cast)

        return send

    def _connect(self) -> TargetDescription:
        if self._client is None:
            name = f"{session_prefix(self._context)}{self._context.epoch}"
            self._client = open_adbc(self._connection, name, ErrorType.SINK)
            self._cursor = self._client.cursor()
            ((now,),) = adbc_fetch(self._cursor)("SELECT clock_timestamp()", [])
            self._clock = (now.astimezone(UTC), time.monotonic())
        if self._target is None:
            self._target = describe_target(adbc_fetch(self._cursor), self._table, self._key)
        if self._target is None:
            raise SinkError(
                f"target table {self._table} does not exist in connection {self._connection.id!r}.",
                sqlstate="42P01",
                hint="It existed when the run began; create it again and start a new run.",
            )
        return self._target

    def _execute(self, statements: str) -> None:
        self._cursor.executescript(statements)

    def _roll_back(self) -> bool:
        """Roll back and return whether the connection is alive; close a connection that is lost."""
        from adbc_driver_manager import Error

        if self._client is None:
            return False
        try:
            self._execute("ROLLBACK")
        except Error:
            self.close()
            return False
        return True

    def _to_error_info(self, error: Exception, operation: str) -> ErrorInfo:
        """Roll back and return the error information; after a lost connection, check whether a newer run has ended it.

        :param error: the driver's exception
        :param operation: description of the failed operation, with which the message begins
        :raises FencedError: if the fence has a newer epoch than this writer
        """
        from adbc_driver_manager import Error

        if self._roll_back():
            info = error_info(error, ErrorType.SINK, operation)
            return replace(info, message=f"{info.message}. {_DIFFER_HINT}") if info.sqlstate == ROWS_DIFFER else info
        try:
            target = self._connect()
            bookkeeping = BookkeepingTables(target.table.schema)
            fenced = fenced_epoch(adbc_fetch(self._cursor), bookkeeping, self._context)
        except CkptError as unreachable:
            return unreachable.info
        except Error as again:
            self.close()
            return error_info(again, ErrorType.SINK, operation, lost=True)
        refuse_if_fenced(fenced, self._context.epoch, bookkeeping.place, self._pipeline)
        return replace(error_info(error, ErrorType.SINK, operation, lost=True), is_outage=False)


def _failed_outcome(task: BatchTask, error: ErrorInfo) -> Outcome:
    return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error)
