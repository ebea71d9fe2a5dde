"""Encode dead letters as messages: original key, value and headers, error headers, then one identifying header.

The identifying header has a fixed name, which the configured header prefix does not change. It names the attempt that
wrote the dead letter, so that the dead letter can be found and read back.

If the dead letter is written in its batch's transaction, the header also has a signature in the field ``seal``: an HMAC
whose secret is stored only in the batch's receipt. So other programs that write to the topic cannot forge a dead
letter, since they do not know the secret before the receipt is committed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask

Headers = list[tuple[str, bytes | None]]

DEAD_LETTER_HEADER = "ckpt-dead-letter"
"""Name of the identifying header."""


def dead_letter_headers(
    dead_letter: DeadLetter, task: BatchTask, context: SinkContext, number: int, secret: bytes | None = None
) -> Headers:
    """Return the headers of one dead letter.

    :param dead_letter: the dead letter
    :param task: the batch and its attempt
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param number: index of the dead letter among those of its attempt
    :param secret: secret of the attempt, to sign the dead letter; None for no signature
    """
    own = list(dead_letter.original_headers)
    document: dict[str, Any] = {
        "ledger": context.ledger,
        "pipeline": context.pipeline,
        "batch": task.key.to_json(),
        "attempt": task.attempt,
        "epoch": context.epoch,
        "position": dead_letter.position,
        "error_type": dead_letter.error.type.value,
        "error": dead_letter.error.message,
        "sqlstate": dead_letter.error.sqlstate,
        "own_headers": len(own),
        "number": number,
    }
    headers: Headers = [*own, *((name, text.encode("utf-8", "replace")) for name, text in dead_letter.headers.items())]
    if secret is not None:
        document["seal"] = seal(secret, document, dead_letter.key, dead_letter.value, headers)
    return [*headers, (DEAD_LETTER_HEADER, json.dumps(document).encode())]


def seal(secret: bytes, document: Mapping[str, Any], key: bytes | None, value: bytes | None, headers: Headers) -> str:
    """Return the signature of a dead letter: an HMAC-SHA-256 of its content, as hexadecimal digits.

    :param secret: secret of the attempt
    :param document: content of the identifying header; the signature in it, if any, is left out
    :param key: key of the message
    :param value: value of the message
    :param headers: headers before the identifying one
    """
    unsealed = {name: item for name, item in document.items() if name != "seal"}
    parts: list[bytes | None] = [json.dumps(unsealed, sort_keys=True).encode(), key, value]
    for name, content in headers:
        parts += [name.encode(), content]
    digest = hmac.new(secret, digestmod=hashlib.sha256)
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.hexdigest()


_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class IdentifyingHeader:
    """Content of the identifying header of a dead letter.

    :param source: the attempt that wrote the dead letter
    :param number: index of the dead letter among those of the attempt
    :param position: position of the record in the source
    :param error: the record's error
    :param own_headers: number of original headers of the record, which come first
    :param document: the whole header, parsed
    """

    source: AttemptKey
    number: int
    position: int
    error: ErrorInfo
    own_headers: int
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, header: bytes | None, context: SinkContext, others: int) -> IdentifyingHeader | None:
        """Return the content of an identifying header; None if it belongs to another ledger or pipeline.

        :param header: value of the header, which any program may have written
        :param context: ids of the ledger and the pipeline
        :param others: number of headers before this one in the message
        :raises ValueError: if the header is malformed
        """
        try:
            data = json.loads((header or b"").decode())
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except ValueError:
            raise ValueError("it is not JSON") from None
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        whose = _require_text(data, "ledger"), _require_text(data, "pipeline")
        if whose != (context.ledger, context.pipeline):
            return None
        batch = data.get("batch")
        if not isinstance(batch, list) or len(batch) != 3 or not isinstance(batch[1], str):
            raise ValueError("its batch is invalid")
        key = BatchKey(_require_whole_number(batch[0], "batch"), batch[1], _require_whole_number(batch[2], "batch"))
        source = AttemptKey(
            key,
            _require_whole_number(data.get("attempt"), "attempt"),
            _require_whole_number(data.get("epoch"), "epoch"),
        )
        sqlstate = data.get("sqlstate")
        if sqlstate is not None and not isinstance(sqlstate, str):
            raise ValueError("its sqlstate is not a text")
        own_headers = _require_whole_number(data.get("own_headers"), "own_headers")
        if own_headers > others:
            raise ValueError("its own_headers exceeds the number of headers")
        position = data.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or abs(position) > _MAX_INTEGER:
            raise ValueError("its position is not a valid number")
        try:
            kind = ErrorType(_require_text(data, "error_type"))
        except ValueError:
            raise ValueError("its error_type is unknown") from None
        error = ErrorInfo(kind, _require_text(data, "error"), sqlstate=sqlstate)
        return cls(source, _require_whole_number(data.get("number"), "number"), position, error, own_headers, data)


def _require_text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(f"its {name} is not a text")
    return value


def _require_whole_number(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INTEGER:
        raise ValueError(f"its {name} is not a whole number from 0 on")
    return value
