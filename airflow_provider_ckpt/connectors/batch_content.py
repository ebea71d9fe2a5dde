"""Content of a batch after the transform: rows to deliver, and dead letters with their origin and error."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa


_ORIGINAL_HEADERS = "original-headers"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that is stored with its error instead of being delivered.

    :param position: the record's position in the source
    :param key: bytes of the original key, if there is one
    :param value: the original bytes, if there are any; for a source of rows, the row as JSON
    :param error: the reason why the record was not delivered
    :param headers: the record's origin, such as its topic or file (see :meth:`~.source_protocol.Reader.origin`)
    :param original_headers: names and values of the record's own headers, in order; a name may occur twice
    """

    position: int
    key: bytes | None
    value: bytes | None
    error: ErrorInfo
    headers: Mapping[str, str] = field(default_factory=dict)
    original_headers: Sequence[tuple[str, bytes | None]] = ()

    def content_texts(self) -> dict[str, str | None]:
        """Return the record's key and value: ``key``, ``key_base64``, ``value`` and ``value_base64``.

        ``key`` and ``value`` are texts, or None if the bytes are not UTF-8; the other two have the same bytes in
        base64. Both forms of a key or value that the record does not have are None.
        """
        return {
            "key": _text(self.key),
            "key_base64": _base64(self.key),
            "value": _text(self.value),
            "value_base64": _base64(self.value),
        }

    def header_texts(self) -> dict[str, str]:
        """Return all headers as texts by name, for a sink that cannot store Kafka headers.

        The record's own headers become one entry ``original-headers``: a JSON list of pairs of name and value. A value
        that is not UTF-8 is null in that list, followed by its base64 as a third element. The entry is left out if the
        record has no headers of its own.
        """
        if not self.original_headers:
            return dict(self.headers)
        own = [[name, *_as_texts(value)] for name, value in self.original_headers]
        return {**self.headers, _ORIGINAL_HEADERS: json.dumps(own, ensure_ascii=False)}


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A dead letter as a sink or a dead letter store returns it.

    :param source: the batch and attempt that wrote the dead letter
    :param dead_letter: the record and its error
    :param at: time at which the dead letter was written
    """

    source: AttemptKey
    dead_letter: DeadLetter
    at: datetime


@dataclass(slots=True)
class BatchContent:
    """The rows, dead letters and counts of a batch after the pipeline's transform, in memory.

    :param rows: the records to deliver, in position order: :data:`~.sink_protocol.ROW_NUMBER`, then the sink's columns
    :param dead_letters: dead letters of the records that the transform rejected, then of those that the sink refused
    :param read: number of records read from the source
    :param filtered: number of records that ``where`` left out or ``error_policy`` skips
    :param already_stored: number of the batch's dead letters that a dead letter store outside the sink holds already,
        so that ``dead_letters`` does not contain them
    :param positions: positions of all records read, as :meth:`.RecordPositions.text` encodes them for the receipt; None
        if the source has no late records, so that receipts need no positions
    """

    rows: pa.Table
    dead_letters: list[DeadLetter]
    read: int
    filtered: int
    already_stored: int = 0
    positions: str | None = None


def split_headers(texts: Mapping[str, str]) -> tuple[dict[str, str], tuple[tuple[str, bytes | None], ...]]:
    """Divide stored headers into the dead letter's and the record's own; inverse of :meth:`DeadLetter.header_texts`.

    :param texts: all headers as texts by name, with the record's own as JSON in ``original-headers``
    :return: the headers by name that locate the record in its source (:attr:`DeadLetter.headers`), and names and values
        of the record's own headers (:attr:`DeadLetter.original_headers`)
    """
    own = json.loads(texts.get(_ORIGINAL_HEADERS, "[]"))
    headers = {name: text for name, text in texts.items() if name != _ORIGINAL_HEADERS}
    return headers, tuple((name, _as_bytes(*value)) for name, *value in own)


def _as_bytes(text: str | None, encoded: str | None = None) -> bytes | None:
    if encoded is not None:
        return base64.b64decode(encoded)
    return None if text is None else text.encode()


def _as_texts(value: bytes | None) -> tuple[str | None, ...]:
    text = _text(value)
    return (text,) if text is not None or value is None else (None, _base64(value))


def _text(value: bytes | None) -> str | None:
    """Return bytes as text; None if there are none, or they are not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def record_error(kind: ErrorType, message: str, sqlstate: str | None = None) -> ErrorInfo:
    """Return an error of one record that is not recoverable: sending the record again cannot succeed.

    :param kind: type of the error
    :param message: description of the error, without secrets
    :param sqlstate: SQLSTATE, if the error comes from a database
    """
    return ErrorInfo(kind, message, False, sqlstate)
