"""Write dead letters to ``ckpt_sink_dead_letter`` in their batch's transaction, and convert its rows back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, KeptLetter, headers_of
from airflow_provider_ckpt.connectors.postgres.client import error_info, quote
from airflow_provider_ckpt.connectors.postgres.receipts import DEAD_LETTER, LETTER_COLUMNS, Bookkeeping
from airflow_provider_ckpt.connectors.protocols import SinkContext
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import DeadLetterQueueError, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa


_STAGE = "ckpt_letters"


class UnwrittenError(DeadLetterQueueError):
    """Refusal of dead letters by the server; a retry may succeed."""


def write_letters(
    cursor: Any, task: BatchTask, context: SinkContext, letters: Sequence[DeadLetter], books: Bookkeeping
) -> None:
    """Write the dead letters of one attempt in its transaction, by INSERT: row level security does not allow COPY.

    :param cursor: an ADBC cursor
    :param task: the attempt
    :param context: ledger, pipeline and epoch of the writer
    :param letters: the dead letters
    :param books: the bookkeeping tables
    :raises UnwrittenError: if they cannot be written, and a new connection would not help
    """
    from adbc_driver_manager import Error

    columns = ", ".join(map(quote, LETTER_COLUMNS))
    try:
        cursor.executescript(
            f"CREATE TEMP TABLE IF NOT EXISTS {_STAGE} ON COMMIT DELETE ROWS AS"
            f" SELECT {columns} FROM {books.table(DEAD_LETTER).format()} WITH NO DATA"
        )
        cursor.adbc_ingest(_STAGE, letter_table(task, context, letters), mode="append", temporary=True)
        cursor.executescript(
            f"INSERT INTO {books.table(DEAD_LETTER).format()} ({columns}) SELECT {columns} FROM pg_temp.{_STAGE}"
        )
    except Error as error:
        info = error_info(error, ErrorType.DEAD_LETTER_QUEUE, f"writing dead letters of {task.key}")
        if info.recoverable or info.sqlstate is None:
            raise
        raise UnwrittenError(info.message, sqlstate=info.sqlstate) from error


def letter_table(task: BatchTask, context: SinkContext, letters: Sequence[DeadLetter]) -> pa.Table:
    """Return the dead letters of one attempt as a table with the columns of :data:`LETTER_COLUMNS`.

    :param task: the attempt
    :param context: ledger, pipeline and epoch of the writer
    :param letters: the dead letters
    """
    import pyarrow as pa

    count = len(letters)
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
        pa.array([letter.position for letter in letters], pa.int64()),
        pa.array([letter.key for letter in letters], pa.binary()),
        pa.array([letter.value for letter in letters], pa.binary()),
        pa.array([letter.error.type.value for letter in letters], pa.string()),
        pa.array([storable(letter.error.message) for letter in letters], pa.string()),
        pa.array([letter.error.sqlstate for letter in letters], pa.string()),
        # The binary form of jsonb: a version byte, then the text.
        pa.array([b"\x01" + headers_json(letter).encode() for letter in letters], pa.binary()),
    ]
    return pa.table([pa.array([value] * count, kind) for value, kind in same] + own, list(LETTER_COLUMNS))


def letter_of(source: AttemptKey, row: tuple[Any, ...]) -> KeptLetter:
    """Return the dead letter in a row of :attr:`Bookkeeping.letters`."""
    position, key, value, error_type, message, sqlstate, headers, at = row
    error = ErrorInfo(ErrorType(error_type), message, sqlstate=sqlstate)
    letter = DeadLetter(position, _bytes(key), _bytes(value), error, *headers_of(headers))
    return KeptLetter(source, letter, at.astimezone(UTC))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def headers_json(letter: DeadLetter) -> str:
    """Return all headers as one JSON object that PostgreSQL can store."""
    headers = {storable(name): storable(value) for name, value in letter.header_texts().items()}
    return json.dumps(headers, ensure_ascii=False)


def storable(text: str) -> str:
    """Return the text without what PostgreSQL cannot store: NUL characters and unpaired surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
