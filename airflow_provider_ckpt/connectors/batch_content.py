"""What becomes of a batch's records: rows to deliver, and dead letters with where they came from and why."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.batch import Counts
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import CkptError, DeadLetterQueueError, ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.delivery import DeadLetterQueue
    from airflow_provider_ckpt.core.wave import BatchTask

LETTER_PAUSE = 1.0
"""Seconds before a dead letter that could not be written is tried again (semantics, section 7)."""

_ORIGINAL_HEADERS = "original-headers"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record that is known not delivered.

    :param position: its source position
    :param key: the original key's bytes, if there is one
    :param value: the original bytes; of a row source, the row as JSON
    :param headers: where it came from (see :meth:`~.protocols.Reader.origin`)
    :param original_headers: the record's own headers, in order; names may come twice
    """

    position: int
    key: bytes | None
    value: bytes | None
    error: ErrorInfo
    headers: Mapping[str, str] = field(default_factory=dict)
    original_headers: Sequence[tuple[str, bytes | None]] = ()

    def header_texts(self) -> dict[str, str]:
        """All headers as texts, for a sink that has no headers of its own: the record's come as ``original-headers``, a
        JSON list of name and value, and a value that is not UTF-8 in base64 as a third element.
        """
        if not self.original_headers:
            return dict(self.headers)
        own = [[name, *_as_texts(value)] for name, value in self.original_headers]
        return {**self.headers, _ORIGINAL_HEADERS: json.dumps(own, ensure_ascii=False)}


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A dead letter as a sink keeps it.

    :param source: the attempt that left it
    :param at: when it was written
    """

    source: AttemptKey
    letter: DeadLetter
    at: datetime


@dataclass(slots=True)
class Content:
    """All of one batch after the transform, in memory.

    :param rows: the records to deliver: :data:`~.protocols.NUMBER`, then the sink's columns; position order
    :param letters: the records that the transform rejected
    :param read: records read from the source
    :param filtered: records that ``where`` left out
    :param elsewhere: dead letters of the batch that are kept in another place than the sink, durably
    :param original: gives, for numbers of ``rows``, a dead letter each with the original bytes and origin headers,
        and the errors passed in; for a writer that finds bad records itself
    :param positions: those of all records read, for the receipt, where records may turn up late
    """

    rows: pa.Table
    letters: list[DeadLetter]
    read: int
    filtered: int
    original: Callable[[Mapping[int, ErrorInfo]], list[DeadLetter]]
    elsewhere: int = 0
    positions: str | None = None

    def counts(self, task: BatchTask, queue: DeadLetterQueue, own: Sequence[DeadLetter] = ()) -> Counts:
        """The batch's counts, if it may be sent as it is.

        :param queue: what the pipeline says of dead letters
        :param own: dead letters of those of the rows that the writer itself found bad
        :raises CkptError: if they do not add up (``SumIdentity``)
        :raises DeadLetterQueueError: if there are dead letters, and the pipeline allows none
        """
        letters = [*self.letters, *own]
        kept = self.elsewhere + len(letters)
        counts = Counts(self.read, self.rows.num_rows - len(own), self.filtered, kept)
        if not counts.balanced:
            raise CkptError(
                f"SumIdentity: {counts.read} records were read, but {counts.delivered} are to be delivered, "
                f"{counts.filtered} were filtered and {counts.dead_lettered} rejected; nothing of the batch was sent.",
                batch=str(task.key),
                hint="Nothing is lost; report it, since it is a defect.",
            )
        if letters and not queue.enabled:
            first = letters[0]
            raise DeadLetterQueueError(
                f"position {first.position} calls for a dead letter ({first.error.type.value}: {first.error.message}), "
                "but dead_letter_queue.enabled is false; nothing of the batch was sent.",
                batch=str(task.key),
                position=first.position,
                hint="Repair the record, or let the pipeline keep dead letters.",
            )
        return counts


def headers_of(texts: Mapping[str, str]) -> tuple[dict[str, str], tuple[tuple[str, bytes | None], ...]]:
    """A dead letter's headers and the record's own, from what :meth:`DeadLetter.header_texts` gave."""
    own = json.loads(texts.get(_ORIGINAL_HEADERS, "[]"))
    headers = {name: text for name, text in texts.items() if name != _ORIGINAL_HEADERS}
    return headers, tuple((name, _as_bytes(*value)) for name, *value in own)


def _as_bytes(text: str | None, encoded: str | None = None) -> bytes | None:
    if encoded is not None:
        return base64.b64decode(encoded)
    return None if text is None else text.encode()


def _as_texts(value: bytes | None) -> tuple[str | None, ...]:
    try:
        return (None if value is None else value.decode(),)
    except UnicodeDecodeError:
        return (None, base64.b64encode(value or b"").decode())


def data_error(kind: ErrorType, message: str, sqlstate: str | None = None) -> ErrorInfo:
    """An error of one record, which trying again cannot help."""
    return ErrorInfo(kind, message, False, sqlstate)
