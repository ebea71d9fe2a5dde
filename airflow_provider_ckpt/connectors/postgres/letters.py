"""Dead letters as the Arrow table that goes into ``ckpt_sink_dead_letter`` with their batch, and back from its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.bookkeeping import LETTER_COLUMNS
from airflow_provider_ckpt.connectors.protocols import DeadLetter, KeptLetter, SinkContext
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.letters import AttemptKey
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa


def letter_table(task: BatchTask, context: SinkContext, letters: Sequence[DeadLetter]) -> pa.Table:
    """The letters of one attempt, in the columns of :data:`LETTER_COLUMNS`."""
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
        pa.array([_storable(letter.error.message) for letter in letters], pa.string()),
        pa.array([letter.error.sqlstate for letter in letters], pa.string()),
        pa.array([_headers(letter) for letter in letters], pa.binary()),
    ]
    return pa.table([pa.array([value] * count, kind) for value, kind in same] + own, list(LETTER_COLUMNS))


def letter_of(source: AttemptKey, row: tuple[Any, ...]) -> KeptLetter:
    """A dead letter from a row of :attr:`Bookkeeping.letters`."""
    position, key, value, error_type, message, sqlstate, headers, at = row
    error = ErrorInfo(ErrorType(error_type), message, sqlstate=sqlstate)
    letter = DeadLetter(position, _bytes(key), _bytes(value), error, headers)
    return KeptLetter(source, letter, at.astimezone(UTC))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _headers(letter: DeadLetter) -> bytes:
    """The headers in the binary form of jsonb: a version byte, then the text."""
    headers = {_storable(name): _storable(value) for name, value in letter.header_texts().items()}
    return b"\x01" + json.dumps(headers, ensure_ascii=False).encode()


def _storable(text: str) -> str:
    """The text without what PostgreSQL cannot store: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
