"""Write dead letters to the sink's table in their batch's transaction, and read them back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter, split_headers
from airflow_provider_ckpt.connectors.dead_letter_retries import DeadLettersRefusedError
from airflow_provider_ckpt.connectors.sql.bookkeeping import Bookkeeping, now
from airflow_provider_ckpt.connectors.sql.failures import error_info
from airflow_provider_ckpt.connectors.sql.names import DEAD_LETTER
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import sqlalchemy as sa

_TOO_LONG = "54000"
"""SQLSTATE of a value that exceeds a limit of the server."""

_COLUMNS = ("position", "key", "value", "error_type", "error", "sqlstate", "headers", "at")


def write_dead_letters(
    connection: sa.Connection, bookkeeping: Bookkeeping, task: BatchTask, dead_letters: Sequence[DeadLetter]
) -> None:
    """Write the dead letters of one attempt in the attempt's transaction.

    If the database refuses the dead letters, only their INSERT is rolled back, and the transaction stays open.

    :param connection: the connection with the transaction
    :param bookkeeping: the bookkeeping tables
    :param task: the batch and its attempt
    :param dead_letters: the dead letters
    :raises DeadLettersRefusedError: if the database refuses them, so that neither a retry nor a new connection would
        help
    :raises sqlalchemy.exc.DBAPIError: if the error may pass by itself or the connection was lost
    """
    from sqlalchemy.exc import DBAPIError

    common = bookkeeping.key_values(task.key) | {"attempt": task.attempt, "epoch": bookkeeping.context.epoch}
    rows = [common | {"number": at} | _values(dead_letter) for at, dead_letter in enumerate(dead_letters)]
    found = bookkeeping.dialect.find_long_row(connection, [list(row.values()) for row in rows])
    if found is not None:
        at, reason = found
        raise DeadLettersRefusedError(
            f"a dead letter of {task.key} {reason}.",
            position=dead_letters[at].position,
            sqlstate=_TOO_LONG,
            hint="Raise max_allowed_packet of the server, or choose another store in dead_letter_queue; run again.",
        )
    try:
        with connection.begin_nested():
            connection.execute(bookkeeping.table(DEAD_LETTER).insert(), rows)
    except DBAPIError as error:
        failure = bookkeeping.dialect.classify(error)
        lost = bool(error.connection_invalidated)
        info = error_info(failure, ErrorType.DEAD_LETTER_QUEUE, f"writing dead letters of {task.key}", lost=lost)
        if info.recoverable or info.sqlstate is None:
            raise
        raise DeadLettersRefusedError(info.message, sqlstate=info.sqlstate) from error


def read_attempt(connection: sa.Connection, bookkeeping: Bookkeeping, source: AttemptKey) -> list[StoredDeadLetter]:
    """Return the dead letters of one attempt, in the order in which they were written.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    :param source: the batch and attempt
    """
    import sqlalchemy as sa

    table = bookkeeping.table(DEAD_LETTER)
    query = (
        sa.select(*(table.c[name] for name in _COLUMNS))
        .where(bookkeeping.of_batch(table, source.key))
        .where((table.c.attempt == source.attempt) & (table.c.epoch == source.epoch))
        .order_by(table.c.number)
    )
    return [_to_dead_letter(source, tuple(row)) for row in connection.execute(query)]


def _values(dead_letter: DeadLetter) -> dict[str, Any]:
    headers = {_storable(name): _storable(value) for name, value in dead_letter.header_texts().items()}
    return {
        "position": dead_letter.position,
        "key": dead_letter.key,
        "value": dead_letter.value,
        "error_type": dead_letter.error.type.value,
        "error": _storable(dead_letter.error.message),
        "sqlstate": dead_letter.error.sqlstate,
        "headers": json.dumps(headers, ensure_ascii=False),
        "at": now(),
    }


def _to_dead_letter(source: AttemptKey, row: tuple[Any, ...]) -> StoredDeadLetter:
    position, key, value, error_type, message, sqlstate, headers, at = row
    error = ErrorInfo(ErrorType(error_type), message, sqlstate=sqlstate)
    dead_letter = DeadLetter(position, _bytes(key), _bytes(value), error, *split_headers(json.loads(headers)))
    return StoredDeadLetter(source, dead_letter, at.replace(tzinfo=UTC))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _storable(text: str) -> str:
    """Return the text with ``?`` in place of unpaired surrogates, since they cannot be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()
