"""Write dead letters to ``ckpt_sink_dead_letter`` in their batch's transaction, and convert that table's rows back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter, split_headers
from airflow_provider_ckpt.connectors.dead_letter_retries import DeadLettersRefusedError
from airflow_provider_ckpt.connectors.postgres.client import error_info, quote
from airflow_provider_ckpt.connectors.postgres.receipts import DEAD_LETTER, DEAD_LETTER_COLUMNS, BookkeepingTables
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa


_STAGE = "ckpt_letters"
_SAVEPOINT = "ckpt_before_letters"


def write_dead_letters(
    cursor: Any,
    task: BatchTask,
    context: SinkContext,
    dead_letters: Sequence[DeadLetter],
    bookkeeping: BookkeepingTables,
) -> None:
    """Write the dead letters of one attempt to the sink's table in the attempt's transaction.

    They are sent to a temporary table by COPY and then inserted, since row level security does not allow COPY into the
    table itself. If the server refuses the dead letters, only their INSERT is rolled back, and the transaction stays
    open.

    :param cursor: an ADBC cursor of the connection on which the transaction is open
    :param task: the batch and its attempt
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param dead_letters: the dead letters
    :param bookkeeping: the bookkeeping tables
    :raises DeadLettersRefusedError: if the server refuses them, so that neither a retry nor a new connection would help
    :raises adbc_driver_manager.Error: if the error may pass by itself or the connection was lost; the caller must roll
        the whole transaction back
    """
    from adbc_driver_manager import Error

    columns = ", ".join(map(quote, DEAD_LETTER_COLUMNS))
    try:
        cursor.executescript(
            f"SAVEPOINT {_SAVEPOINT}; CREATE TEMP TABLE IF NOT EXISTS {_STAGE} ON COMMIT DELETE ROWS AS"
            f" SELECT {columns} FROM {bookkeeping.table(DEAD_LETTER).format()} WITH NO DATA"
        )
        cursor.adbc_ingest(_STAGE, dead_letter_table(task, context, dead_letters), mode="append", temporary=True)
        cursor.executescript(
            f"INSERT INTO {bookkeeping.table(DEAD_LETTER).format()} ({columns}) SELECT {columns} FROM pg_temp.{_STAGE}"
        )
    except Error as error:
        info = error_info(error, ErrorType.DEAD_LETTER_QUEUE, f"writing dead letters of {task.key}")
        if info.recoverable or info.sqlstate is None:
            raise
        cursor.executescript(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        raise DeadLettersRefusedError(info.message, sqlstate=info.sqlstate) from error


def dead_letter_table(task: BatchTask, context: SinkContext, dead_letters: Sequence[DeadLetter]) -> pa.Table:
    """Return the dead letters of one attempt as an Arrow table with the columns :data:`DEAD_LETTER_COLUMNS`.

    :param task: the batch and its attempt
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param dead_letters: the dead letters
    """
    import pyarrow as pa

    count = len(dead_letters)
    key = task.key
    same: list[tuple[Any, pa.DataType]] = [
        (context.ledger, pa.string()),
        (context.pipeline, pa.string()),
        (key.generation, pa.int32()),
        (key.partition, pa.string()),
        (key.seq, pa.int64()),
        (task.attempt, pa.int32()),
        (context.epoch, pa.int64()),
    ]
    own: list[pa.Array] = [
        pa.array([dead_letter.position for dead_letter in dead_letters], pa.int64()),
        pa.array([dead_letter.key for dead_letter in dead_letters], pa.binary()),
        pa.array([dead_letter.value for dead_letter in dead_letters], pa.binary()),
        pa.array([dead_letter.error.type.value for dead_letter in dead_letters], pa.string()),
        pa.array([to_storable_text(dead_letter.error.message) for dead_letter in dead_letters], pa.string()),
        pa.array([dead_letter.error.sqlstate for dead_letter in dead_letters], pa.string()),
        # The binary form of jsonb: a version byte, then the text.
        pa.array([b"\x01" + headers_json(dead_letter).encode() for dead_letter in dead_letters], pa.binary()),
    ]
    return pa.table([pa.array([value] * count, kind) for value, kind in same] + own, list(DEAD_LETTER_COLUMNS))


def to_dead_letter(source: AttemptKey, row: tuple[Any, ...]) -> StoredDeadLetter:
    """Return the dead letter in a row that the query :attr:`BookkeepingTables.dead_letters` has selected.

    :param source: the batch and attempt that wrote it
    :param row: the row
    """
    position, key, value, error_type, message, sqlstate, headers, at = row
    error = ErrorInfo(ErrorType(error_type), message, sqlstate=sqlstate)
    dead_letter = DeadLetter(position, _bytes(key), _bytes(value), error, *split_headers(headers))
    return StoredDeadLetter(source, dead_letter, at.astimezone(UTC))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def headers_json(dead_letter: DeadLetter) -> str:
    """Return all headers of a dead letter as one JSON object that PostgreSQL can store."""
    headers = {to_storable_text(name): to_storable_text(value) for name, value in dead_letter.header_texts().items()}
    return json.dumps(headers, ensure_ascii=False)


def to_storable_text(text: str) -> str:
    """Return the text with U+FFFD for NUL and ``?`` for unpaired surrogates, which PostgreSQL cannot store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
