"""Dead letters as messages: key, value and headers as they were, then the headers that say what happened, then ours.

Ours is one header that no prefix changes. It says whose letter it is, so that it can be found and read back. Where the
letter stands in its batch's transaction it also carries a seal, made with a secret that the receipt alone holds, and
nobody knows before the receipt is there: others may write to the topic, and could repeat all the rest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.protocols import SinkContext
from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave import BatchTask

Headers = list[tuple[str, bytes | None]]

LETTER = "ckpt-letter"
"""The name of our own header."""


def letter_headers(
    letter: DeadLetter, task: BatchTask, context: SinkContext, number: int, secret: bytes | None = None
) -> Headers:
    """The headers of one dead letter.

    :param number: among those of its attempt
    :param secret: of the attempt; without one the letter gets no seal
    """
    own = list(letter.original_headers)
    document: dict[str, Any] = {
        "ledger": context.ledger,
        "pipeline": context.pipeline,
        "batch": task.key.to_json(),
        "attempt": task.attempt,
        "epoch": context.epoch,
        "position": letter.position,
        "error_type": letter.error.type.value,
        "error": letter.error.message,
        "sqlstate": letter.error.sqlstate,
        "own_headers": len(own),
        "number": number,
    }
    headers: Headers = [*own, *((name, text.encode("utf-8", "replace")) for name, text in letter.headers.items())]
    if secret is not None:
        document["seal"] = seal(secret, document, letter.key, letter.value, headers)
    return [*headers, (LETTER, json.dumps(document).encode())]


def seal(secret: bytes, document: Mapping[str, Any], key: bytes | None, value: bytes | None, headers: Headers) -> str:
    """Return the seal of a letter with this content, which cannot be computed without the secret.

    :param secret: of the attempt
    :param document: the contents of our own header; a seal in it is left out
    :param key: the message's
    :param value: the message's
    :param headers: those before our own
    """
    said = {name: item for name, item in document.items() if name != "seal"}
    parts: list[bytes | None] = [json.dumps(said, sort_keys=True).encode(), key, value]
    for name, content in headers:
        parts += [name.encode(), content]
    made = hmac.new(secret, digestmod=hashlib.sha256)
    for part in parts:
        made.update(b"-" if part is None else b"%d:" % len(part) + part)
    return made.hexdigest()


_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Said:
    """Contents of our own header of a dead letter.

    :param source: the attempt that wrote the letter
    :param number: of the letter among those of the attempt
    :param document: the whole header, parsed
    :param own_headers: how many of the message's headers are the record's own; they come first
    """

    source: AttemptKey
    number: int
    position: int
    error: ErrorInfo
    own_headers: int
    document: Mapping[str, Any]

    @classmethod
    def read(cls, header: bytes | None, context: SinkContext, others: int) -> Said | None:
        """Parse the header of a letter of this ledger and pipeline; return None for a letter of another.

        :param header: its bytes, which anyone may have written
        :param context: names the ledger and pipeline
        :param others: number of headers before it
        :raises ValueError: if no writer of ours can have written it
        """
        try:
            data = json.loads((header or b"").decode())
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except ValueError:
            raise ValueError("it is no JSON") from None
        if not isinstance(data, dict):
            raise ValueError("it is no JSON object")
        whose = _text(data, "ledger"), _text(data, "pipeline")
        if whose != (context.ledger, context.pipeline):
            return None
        batch = data.get("batch")
        if not isinstance(batch, list) or len(batch) != 3 or not isinstance(batch[1], str):
            raise ValueError("its batch is none")
        key = BatchKey(_whole(batch[0], "batch"), batch[1], _whole(batch[2], "batch"))
        source = AttemptKey(key, _whole(data.get("attempt"), "attempt"), _whole(data.get("epoch"), "epoch"))
        sqlstate = data.get("sqlstate")
        if sqlstate is not None and not isinstance(sqlstate, str):
            raise ValueError("its sqlstate is no text")
        own_headers = _whole(data.get("own_headers"), "own_headers")
        if own_headers > others:
            raise ValueError("its own_headers is more than there are")
        position = data.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or abs(position) > _LARGEST:
            raise ValueError("its position is no number")
        try:
            kind = ErrorType(_text(data, "error_type"))
        except ValueError:
            raise ValueError("its error_type is none") from None
        error = ErrorInfo(kind, _text(data, "error"), sqlstate=sqlstate)
        return cls(source, _whole(data.get("number"), "number"), position, error, own_headers, data)


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(f"its {name} is no text")
    return value


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError(f"its {name} is no whole number from 0 on")
    return value
