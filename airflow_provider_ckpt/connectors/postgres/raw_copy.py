"""Copy batches between two PostgreSQL tables as the bytes of binary COPY, without converting any value.

A lane does this if nothing is transformed and every column has the same type in both tables. Types are compared when
the lane opens its connections; each batch then checks that no column of either table was altered. A batch is read into
memory, claimed, sent and committed like any other; only the conversion to Arrow and back is saved, which is most of a
lane's work. After an error that may pass by itself, such as a deadlock, the outcome is ``failed``. Any other problem (a
row that the target refuses, a lost connection, an existing receipt) leaves nothing in the target, and the lane then
delivers this batch and those after it with :class:`~.reader.PostgresReader` and :class:`~.writer.PostgresWriter`, which
find the bad rows and report the errors.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    READ_APPLICATION,
    error_info,
    open_psycopg,
    quote,
    require_connection,
)
from airflow_provider_ckpt.connectors.postgres.columns_version import (
    columns_version,
    columns_version_sql,
    refuse_other_columns,
    unaltered_check_sql,
)
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.copied_rows import CopyMessages, parse_rows
from airflow_provider_ckpt.connectors.postgres.durability import SET_DURABLE_COMMIT
from airflow_provider_ckpt.connectors.postgres.fence import session_prefix
from airflow_provider_ckpt.connectors.postgres.range_query import SESSION_SETTINGS, RangeQuery
from airflow_provider_ckpt.connectors.postgres.receipt_claim import claim_script
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.row_errors import may_be_of_rows
from airflow_provider_ckpt.connectors.postgres.row_security import row_security_setting
from airflow_provider_ckpt.connectors.postgres.row_writer import CHECK_CONSTRAINTS
from airflow_provider_ckpt.connectors.postgres.same_binary_form import are_utf8, is_same_type
from airflow_provider_ckpt.connectors.postgres.table import Table, psycopg_fetch
from airflow_provider_ckpt.connectors.postgres.target_rules import TargetDescription, describe_target
from airflow_provider_ckpt.connectors.raw_copy_protocol import RawRows
from airflow_provider_ckpt.connectors.record_positions import RecordPositions
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import CkptError, ErrorType
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape
    from airflow_provider_ckpt.core.ranges import Range

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20


Session = Any
"""A psycopg2 connection in autocommit mode."""


class BatchQuery(Protocol):
    """Interface of the query that reads the rows of a batch from one table."""

    @property
    def table(self) -> Table:
        """The source table."""

    def select(self, columns: Sequence[str], span: Range) -> str:
        """Return the SELECT statement that returns the rows of a range.

        :param columns: SQL expressions of the columns to return
        :param span: the range of positions
        """


class PostgresRawCopy:
    """Raw copy of one lane from a PostgreSQL table to a PostgreSQL table.

    It implements :class:`~airflow_provider_ckpt.connectors.raw_copy_protocol.RawCopy`.

    :param pipeline: the pipeline, which has no transform
    :param source: the source's connection
    :param sink: the sink's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param shape: the columns to copy, as :meth:`.PostgresSource.shape` returned them
    """

    def __init__(
        self,
        pipeline: Pipeline,
        source: Connection | None,
        sink: Connection | None,
        context: SinkContext,
        shape: RecordShape,
    ) -> None:
        self._pipeline = pipeline
        self._source = require_connection(source, "source")
        self._sink = require_connection(sink, "sink")
        self._context = context
        self._shape = shape
        self._columns = self._columns_to_copy()
        self._reading: _Reading | None = None
        self._writing: _Writing | None = None
        # True from the start if the cursor or a column cannot be copied.
        self._ended = len(self._columns) != len(shape.columns) or bool(shape.absent)

    def read(self, task: BatchTask) -> RawRows | None:
        """Read a batch as raw COPY data; see :meth:`RawCopy.read`. The first call opens both connections.

        Return None for a replay of dead letters, for a batch with another instruction than ``deliver``, and for a batch
        that cannot be copied raw. After a batch that cannot be copied raw, all further calls return None.

        :param task: the batch
        """
        if self._ended or task.instruction is not Instruction.DELIVER or task.key.is_replay:
            return None
        try:
            rows = self._read(task)
        except Exception as error:  # noqa: BLE001  # the lane reads the records instead, and reports what fails
            self._log(task, error, ErrorType.SOURCE)
            rows = None
        if rows is None:
            self._ended = True
        return rows

    def deliver(self, task: BatchTask, rows: RawRows) -> Outcome | None:
        """Claim the receipt and copy the rows in one transaction; see :meth:`RawCopy.deliver`.

        Return None if nothing was delivered, so that the lane must deliver the batch as records.
        """
        if self._ended:
            return None
        try:
            return self._deliver(task, rows)
        except Exception as error:  # noqa: BLE001  # the lane delivers the records instead, and reports what fails
            failed = self._transient_failure(task, error)
            if failed is not None:
                return failed
            self._log(task, error, ErrorType.SINK)
        except BaseException:
            self._close_writing()  # the open transaction has a claim
            raise
        self._ended = True
        self._close_writing()
        return None

    def _transient_failure(self, task: BatchTask, error: Exception) -> Outcome | None:
        """Roll back and return a failed outcome, after an error that may pass by itself, such as a deadlock.

        :param task: the batch
        :param error: the error
        :return: the outcome; None if a row may be the cause or the session is lost, so that the lane must deliver the
            batch as records
        """
        from psycopg2 import Error

        info = error_info(error, ErrorType.SINK, f"delivering {task.key} {task.range} to {self._pipeline.sink.place}")
        if self._writing is None or not info.recoverable or may_be_of_rows(error):
            return None
        try:
            with self._writing.session.cursor() as cursor:
                cursor.execute("ROLLBACK")
        except Error:
            return None
        return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=info)

    def close(self) -> None:
        """Close both connections. The reading thread must have ended."""
        self._close_writing()
        if self._reading is not None:
            self._reading.session.close()
            self._reading = None

    def _columns_to_copy(self) -> list[str]:
        """Return the names of the columns to copy: first the cursor, whose values are the positions, then the rest."""
        cursor = PostgresSourceSection.of(self._pipeline).cursor
        return [cursor, *(name for name, _ in self._shape.columns if name != cursor)]

    def _target_name(self, task: BatchTask) -> str:  # noqa: ARG002 - all batches go to one table
        """Return the name of the table to which a batch is copied, in the form of ``sink.table``.

        :param task: the batch
        """
        return self._pipeline.sink.place

    def _describe(self, session: Session, task: BatchTask) -> BatchQuery | None:  # noqa: ARG002 - the same for all
        """Return the query of batches of the source's table; None if there is no such table.

        :param session: psycopg2 connection to the source
        :param task: the first batch
        """
        return RangeQuery.describe(psycopg_fetch(session), self._pipeline, self._shape)

    def _to_rows(self, messages: Sequence[bytes], query: BatchQuery, task: BatchTask) -> RawRows | None:  # noqa: ARG002
        """Return the rows of a COPY with their positions; None if the messages are not one for each row.

        :param messages: all messages of the COPY
        :param query: the query that selected the rows
        :param task: the batch
        """
        assert isinstance(query, RangeQuery)
        return parse_rows(messages, len(self._columns), query.cursor_kind)

    def _positions(self, rows: RawRows) -> str | None:
        """Return the positions of rows as the text that the receipt stores; None in a subclass that stores none."""
        return RecordPositions.of(rows.positions).text()

    def _read(self, task: BatchTask) -> RawRows | None:
        """Read a batch from the source table as the bytes of binary COPY; return None if it cannot be copied raw.

        The first call opens both connections and compares the tables.

        :param task: the batch
        """
        if self._reading is None:
            self._open(task)
        reading, writing = self._reading, self._writing
        if reading is None or writing is None or task.detail.get("oid") not in (None, reading.query.table.oid):
            return None
        messages = CopyMessages()
        select = reading.query.select([quote(name) for name in self._columns], task.range)
        with reading.session.cursor() as cursor:
            cursor.copy_expert(f"COPY ({select}) TO STDOUT (FORMAT binary)", messages)
        if columns_version(reading.session, reading.version_sql) != reading.version:
            return None  # a column was altered during the COPY, so bytes may be of another type than compared
        return self._to_rows(messages.received, reading.query, task)

    def _open(self, task: BatchTask) -> None:
        """Connect to source and sink, and compare the two tables.

        If a table is absent or the rows cannot be copied raw, ``_writing`` remains None.

        :param task: the first batch
        """
        application = f"{READ_APPLICATION}{self._pipeline.name}"
        settings = SESSION_SETTINGS | row_security_setting(PostgresSourceSection.of(self._pipeline))
        session = open_psycopg(self._source, application, ErrorType.SOURCE, settings)
        version_sql = columns_version_sql(self._pipeline.source.place)
        # The version is read before the description, so that it is not newer than the columns described.
        version = columns_version(session, version_sql)
        query = self._describe(session, task)
        if query is None:
            session.close()
            return
        if self._shape.version is not None:
            refuse_other_columns(query.table, self._shape, str(task.key))
        self._reading = _Reading(session, query, version_sql, version)
        session = open_psycopg(self._sink, f"{session_prefix(self._context)}{self._context.epoch}", ErrorType.SINK)
        fetch = psycopg_fetch(session)
        check = unaltered_check_sql(session, self._target_name(task))
        target = describe_target(fetch, self._target_name(task), ())
        if target is None or not self._is_same(query.table, target) or not are_utf8(self._reading.session, session):
            session.close()
            return
        ((now,),) = fetch("SELECT clock_timestamp()", [])
        self._writing = _Writing(session, target, check, now.astimezone(UTC) - timedelta(seconds=time.monotonic()))

    def _is_same(self, source: Table, target: TargetDescription) -> bool:
        """Return whether rows of the source can be written to the target without converting a value.

        Each column to copy must have the same type in both tables, and the target must accept COPY: it has neither
        rules nor row level security.

        :param source: the source table
        :param target: the target table
        """
        if target.behaviour.inserts_only:
            return False
        pairs = [(source.by_name[name], target.table.by_name.get(name)) for name in self._columns]
        return all(theirs is not None and is_same_type(ours, theirs) for ours, theirs in pairs)

    def _deliver(self, task: BatchTask, rows: RawRows) -> Outcome:
        writing = self._writing
        assert writing is not None
        number = len(rows.positions)
        at = writing.started_at + timedelta(seconds=time.monotonic())
        receipt = Receipt(
            task.key, task.range, task.instruction.verdict, self._context.epoch, task.attempt,
            Counts(read=number, delivered=number), at, task.bound, self._positions(rows),
        )  # fmt: skip
        table, count = writing.target.table, writing.target.row_count(upsert=False)
        settings = f"{SET_DURABLE_COMMIT}, {count.start(number)}"
        columns = ", ".join(map(quote, self._columns))
        with writing.session.cursor() as cursor:
            cursor.execute(claim_script(receipt, self._context, BookkeepingTables(table.schema), settings))
            if number:
                copy = f"COPY {table.sql} ({columns}) FROM STDIN (FORMAT binary)"
                cursor.copy_expert(copy, io.BytesIO(rows.data), _CHUNK_BYTES)
            cursor.execute(f"{CHECK_CONSTRAINTS}; {writing.unaltered_check} {count.check}; COMMIT")
        return Outcome(task.key, task.attempt, AttemptOutcome.DELIVERED, receipt=receipt)

    def _log(self, task: BatchTask, error: Exception, kind: ErrorType) -> None:
        """Log the reason why a batch cannot be copied raw.

        Only the log mentions it: the lane delivers the batch as records, and reports an error if that fails as well.

        :param task: the batch
        :param error: the reason
        :param kind: type of the error: ``Source`` or ``Sink``
        """
        reason = error.message if isinstance(error, CkptError) else error_info(error, kind).message
        log.info("%s: batch %s is delivered as records, not as raw COPY: %s", self._pipeline.name, task.key, reason)

    def _close_writing(self) -> None:
        if self._writing is not None:
            self._writing.session.close()
            self._writing = None


@dataclass(frozen=True, slots=True)
class _Reading:
    """Session with the source's database, and the query that reads batches over it.

    :param session: psycopg2 connection in autocommit mode
    :param query: the query
    :param version_sql: SQL expression of the version of the table's columns
    :param version: that version when the query was made
    """

    session: Session
    query: BatchQuery
    version_sql: str
    version: str | None


@dataclass(frozen=True, slots=True)
class _Writing:
    """Session with the sink's database, and the description of the target there.

    :param session: psycopg2 connection in autocommit mode
    :param target: the target table
    :param unaltered_check: statement that fails if a column of the target was altered since it was described. COPY
        locks the table, so none can be altered between COPY and this check
    :param started_at: time of the sink's server at which this process's monotonic clock was 0
    """

    session: Any
    target: TargetDescription
    unaltered_check: str
    started_at: datetime
