"""Copy batches between two PostgreSQL tables as the bytes of binary COPY, without converting any value.

A lane's fast path does this where nothing is transformed and every column has the same type in both tables. Types are
compared when a lane opens its connections; each batch then checks that no column of either table was altered. A batch
is read into memory, claimed, sent and committed like any other; only the conversion to Arrow and back is saved, which
is most of a lane's work. After an error that may pass by itself, such as a deadlock, the attempt has failed. Whatever
else goes wrong (a row that the target refuses, a lost connection, an existing receipt) leaves nothing in the target,
and the lane then delivers this batch and those after it with :class:`~.reader.PostgresReader` and
:class:`~.writer.PostgresWriter`, which find the bad rows and report the errors.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    error_info,
    literal,
    open_psycopg,
    quote,
    require_connection,
    split_table,
)
from airflow_provider_ckpt.connectors.postgres.column_types import INTEGERS, MICROSECONDS_A_DAY, CursorKind
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.durability import SET_DURABLE_COMMIT
from airflow_provider_ckpt.connectors.postgres.fence import session_prefix
from airflow_provider_ckpt.connectors.postgres.range_query import SESSION_SETTINGS, RangeQuery
from airflow_provider_ckpt.connectors.postgres.receipt_claim import claim_script
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.roles import anonymous_block
from airflow_provider_ckpt.connectors.postgres.row_errors import may_be_of_rows
from airflow_provider_ckpt.connectors.postgres.row_writer import CHECK_CONSTRAINTS
from airflow_provider_ckpt.connectors.postgres.table import Column, Table, psycopg_fetch
from airflow_provider_ckpt.connectors.postgres.target_rules import TargetDescription, describe_target
from airflow_provider_ckpt.connectors.raw_copy_protocol import RawRows
from airflow_provider_ckpt.connectors.record_positions import RecordPositions
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import CkptError, ErrorType
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.wave import BatchTask, Outcome

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape

log = logging.getLogger(__name__)

_TYPES = frozenset(
    {
        "bool", "bpchar", "bytea", "cidr", "date", "float4", "float8", "inet", "int2", "int4", "int8", "interval",
        "json", "jsonb", "macaddr", "numeric", "text", "time", "timestamp", "timestamptz", "timetz", "uuid", "varchar",
    }
)  # fmt: skip
"""Types, by their name in pg_type, whose binary form depends neither on the database nor on the server's version."""

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""Start of binary COPY data without flags: the server sends it in one message with the first row."""
_TRAILER = b"\xff\xff"
_CURSOR_BYTES = {CursorKind.INT2: 2, CursorKind.INT4: 4, CursorKind.DATE: 4}
_MICROSECONDS_TO_2000 = 946_684_800_000_000
_DAYS_TO_2000 = 10_957
_CHUNK_BYTES = 1 << 20

_COLUMNS_VERSION = """
(SELECT pg_catalog.string_agg(pg_catalog.format('%s/%s/%s', a.attrelid, a.attnum, a.xmin), ' ' ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a WHERE a.attrelid = pg_catalog.to_regclass({0}) AND a.attnum > 0)
"""
"""SQL expression of a text that changes whenever a column of a table is altered, or the table is recreated."""


class PostgresRawCopy:
    """Raw copy of one lane between two tables.

    It implements :class:`~airflow_provider_ckpt.connectors.raw_copy_protocol.RawCopy`.

    :param pipeline: the pipeline, from a PostgreSQL table to a PostgreSQL table, without a transform
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
        cursor = PostgresSourceSection.of(pipeline).cursor
        others = [name for name, _ in shape.columns if name != cursor]
        self._columns = [cursor, *others]
        self._reading: _Reading | None = None
        self._writing: _Writing | None = None
        self._ended = len(others) == len(shape.columns)  # the cursor is not among the columns to copy

    def read(self, task: BatchTask) -> RawRows | None:
        """Read a batch; see :meth:`RawCopy.read`. The first call opens both connections.

        A replay, and a batch that is to be rejected or voided, is never copied raw. After any other batch that cannot
        be copied raw, all further calls return None.
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
        """Claim the receipt and copy the rows in one transaction; see :meth:`RawCopy.deliver`."""
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

        :return: None if the cause may be a row, or the session is lost, so that the lane must deliver the batch as
            records
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

    def _read(self, task: BatchTask) -> RawRows | None:
        """Read a batch; return None if its rows cannot be copied raw.

        The first call opens both connections and compares the tables.
        """
        if self._reading is None:
            self._open()
        reading, writing = self._reading, self._writing
        if reading is None or writing is None or task.detail.get("oid") not in (None, reading.query.table.oid):
            return None
        messages = _Messages()
        select = reading.query.select([quote(name) for name in self._columns], task.range)
        with reading.session.cursor() as cursor:
            cursor.copy_expert(f"COPY ({select}) TO STDOUT (FORMAT binary)", messages)
        if _columns_version(reading.session, reading.version_sql) != reading.version:
            return None  # types of equal size may have been exchanged
        return _parse(messages.received, len(self._columns), reading.query.cursor_kind)

    def _open(self) -> None:
        """Connect to source and sink, and keep both connections if the columns of both tables are the same."""
        application = f"ckpt-read:{self._pipeline.name}"
        session = open_psycopg(self._source, application, ErrorType.SOURCE, SESSION_SETTINGS)
        version_sql = _columns_version_sql(self._pipeline.source.place)
        version = _columns_version(session, version_sql)  # before the description, so that it is not newer
        query = RangeQuery.describe(psycopg_fetch(session), self._pipeline, self._shape)
        if query is None:
            session.close()
            return
        self._reading = _Reading(session, query, version_sql, version)
        session = open_psycopg(self._sink, f"{session_prefix(self._context)}{self._context.epoch}", ErrorType.SINK)
        fetch = psycopg_fetch(session)
        check = _unaltered_check(session, self._pipeline.sink.place)
        target = describe_target(fetch, self._pipeline.sink.place, ())
        if target is None or not self._is_same(query.table, target) or not _are_utf8(self._reading.session, session):
            session.close()
            return
        ((now,),) = fetch("SELECT clock_timestamp()", [])
        self._writing = _Writing(session, target, check, now.astimezone(UTC) - timedelta(seconds=time.monotonic()))

    def _is_same(self, source: Table, target: TargetDescription) -> bool:
        """Return whether COPY may write to the target, and each column to copy has the same type in both tables."""
        if target.behaviour.inserts_only:
            return False
        pairs = [(source.by_name[name], target.table.by_name.get(name)) for name in self._columns]
        return all(theirs is not None and _is_same_type(ours, theirs) for ours, theirs in pairs)

    def _deliver(self, task: BatchTask, rows: RawRows) -> Outcome:
        writing = self._writing
        assert writing is not None
        number = len(rows.positions)
        at = writing.started_at + timedelta(seconds=time.monotonic())
        receipt = Receipt(
            task.key, task.range, task.instruction.verdict, self._context.epoch, task.attempt,
            Counts(read=number, delivered=number), at, task.bound, RecordPositions.of(rows.positions).text(),
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
        """Log why a batch cannot be copied raw. The lane reports an error if it cannot deliver the records either."""
        reason = error.message if isinstance(error, CkptError) else error_info(error, kind).message
        log.info("%s: batch %s is delivered as records, not as raw COPY: %s", self._pipeline.name, task.key, reason)

    def _close_writing(self) -> None:
        if self._writing is not None:
            self._writing.session.close()
            self._writing = None


@dataclass(frozen=True, slots=True)
class _Reading:
    """The source's session, and the query of the batches.

    :param session: psycopg2 connection in autocommit mode
    :param query: the query
    :param version_sql: SQL expression of the version of the table's columns
    :param version: that version when the query was made
    """

    session: Any
    query: RangeQuery
    version_sql: str
    version: str | None


@dataclass(frozen=True, slots=True)
class _Writing:
    """The sink's session, and the target.

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


class _Messages:
    """File-like object to which psycopg2 writes each message of a COPY.

    :ivar received: all messages, in order
    """

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.write = self.received.append  # a bound method of the list: it is called for each row


def _columns_version_sql(name: str) -> str:
    """Return the SQL expression of the version of a table's columns: a text that changes when one is altered.

    :param name: name of the table, as ``source.table`` or ``sink.table`` of the pipeline gives it
    """
    schema, table = split_table(name)
    return _COLUMNS_VERSION.format(literal(f"{quote(schema)}.{quote(table)}" if schema else quote(table)))


def _columns_version(session: Any, version_sql: str) -> str | None:
    ((version,),) = psycopg_fetch(session)(f"SELECT {version_sql}", [])
    return None if version is None else str(version)


def _unaltered_check(session: Any, name: str) -> str:
    """Return a statement that fails if a column of a table is altered after this call.

    :param session: psycopg2 connection in autocommit mode
    :param name: name of the table, as ``sink.table`` of the pipeline gives it
    """
    version_sql = _columns_version_sql(name)
    version = literal(_columns_version(session, version_sql))
    return anonymous_block(
        f"IF {version_sql} IS DISTINCT FROM {version} THEN RAISE EXCEPTION USING ERRCODE = '55000',"
        " MESSAGE = 'a column of the target was altered'; END IF;"
    )


def _is_same_type(ours: Column, theirs: Column) -> bool:
    """Return whether a source column's values have the same binary form in a target column, without any rounding."""
    is_base_type = ours.type_name == ours.base_type and theirs.type_name == theirs.base_type  # else a domain
    return (
        is_base_type
        and ours.base_type == theirs.base_type in _TYPES
        and ours.receive == theirs.receive  # else one is a user's type of the same name
        and theirs.modifier in (-1, ours.modifier)
        and not theirs.generated
    )


def _are_utf8(*sessions: Any) -> bool:
    """Return whether the databases of all given sessions are encoded as UTF-8, so that texts can be copied as bytes."""
    return all(session.get_parameter_status("server_encoding") == "UTF8" for session in sessions)


def _parse(messages: Sequence[bytes], columns: int, kind: CursorKind) -> RawRows | None:
    """Return the rows of a COPY, with the positions from their first column, the cursor.

    :param messages: all messages of the COPY, which must be one for each row and one for the end
    :param columns: number of columns
    :param kind: type of the cursor
    :return: None if the messages are not one for each row, as behind a proxy that joins messages
    """
    import numpy as np

    if not messages[0].startswith(_HEADER) or not messages[-1].endswith(_TRAILER):
        return None
    data = b"".join(messages)
    if data == _HEADER + _TRAILER:
        return RawRows(data, np.array([], np.int64))
    width = _CURSOR_BYTES.get(kind, 8)
    start = np.dtype([("columns", ">i2"), ("bytes", ">i4"), ("value", f">i{width}")])
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
    starts = np.concatenate(([len(_HEADER)], ends[:-2]))
    if messages[-1] != _TRAILER or starts[-1] + start.itemsize > len(data):
        return None
    at = starts[:, np.newaxis] + np.arange(start.itemsize)
    rows = np.frombuffer(data, np.uint8)[at].view(start)[:, 0]
    if (rows["columns"] != columns).any() or (rows["bytes"] != width).any():
        return None
    return RawRows(data, _to_positions(kind, rows["value"].astype(np.int64)))


def _to_positions(kind: CursorKind, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions of cursor values in PostgreSQL's binary form, which counts dates and times from 2000."""
    if kind in INTEGERS:
        return values
    if kind is CursorKind.DATE:
        return (values + _DAYS_TO_2000) * MICROSECONDS_A_DAY
    return values + _MICROSECONDS_TO_2000
