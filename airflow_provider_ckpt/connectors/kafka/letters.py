"""Dead letters as messages: key, value and headers as they were, then the headers that say what happened, then ours.

Ours is one header that no prefix changes. It says whose letter it is, so that it can be found and read back.
"""

from __future__ import annotations

import json
from typing import Any

from airflow_provider_ckpt.connectors.content import DeadLetter
from airflow_provider_ckpt.connectors.protocols import SinkContext
from airflow_provider_ckpt.core.wave import BatchTask

Headers = list[tuple[str, bytes | None]]

LETTER = "ckpt-letter"
"""The name of our own header."""


def letter_headers(letter: DeadLetter, task: BatchTask, context: SinkContext, number: int | None = None) -> Headers:
    """The headers of one dead letter.

    :param number: among those of its attempt, where it may have been written twice
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
    said = [(name, text.encode("utf-8", "replace")) for name, text in letter.headers.items()]
    return [*own, *said, (LETTER, json.dumps(document).encode())]
