"""Dead letters as messages: key and value as they were, and headers that say what happened (semantics, section 8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.protocols import DeadLetter, SinkContext
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

Headers = list[tuple[str, bytes | None]]


def letter_headers(
    letter: DeadLetter, task: BatchTask, pipeline: Pipeline, context: SinkContext, at: datetime
) -> Headers:
    """The headers of one dead letter: ours, and before them the record's own if the pipeline wants them.

    :param at: when it was found undeliverable
    """
    queue = pipeline.dead_letter_queue
    own = list(letter.original_headers) if queue.include_original_headers else []
    ours = [(f"{queue.header_prefix}{name}", _bytes(value)) for name, value in _facts(letter, task, pipeline)]
    whose = {"pipeline": context.pipeline, "ledger": context.ledger, "epoch": str(context.epoch)}
    rest = {"timestamp": at.isoformat(), **whose}
    return [*own, *ours, *((f"{queue.header_prefix}{name}", _bytes(value)) for name, value in rest.items())]


def _facts(letter: DeadLetter, task: BatchTask, pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    yield "error", letter.error.message
    yield "error-type", letter.error.type.value
    if letter.error.sqlstate:
        yield "error-sqlstate", letter.error.sqlstate
    yield from letter.headers.items()
    if not {"source-offset", "source-position"} & set(letter.headers):
        yield "source-position", str(letter.position)
    yield "destination", pipeline.sink.topic or ""
    if pipeline.transform.where:
        yield "filter", pipeline.transform.where
    changes = {
        name: value
        for name, value in (("decode", pipeline.transform.decode), ("select", pipeline.transform.select))
        if value
    }
    if changes:
        yield "transform", json.dumps(changes, ensure_ascii=False)
    yield "retry-attempts", str(task.attempt - 1)
    yield "batch", str(task.key)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
