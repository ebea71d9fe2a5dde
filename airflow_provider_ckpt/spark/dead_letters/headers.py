"""Headers that dead letters carry beside the record's bytes (semantics, section 8).

Their names begin with the pipeline's prefix, ``header_prefix`` in ``config/delivery.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.spark.dead_letters.replay_reader import is_replay

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.batch_content import DeadLetter
    from airflow_provider_ckpt.core.errors import ErrorInfo
    from airflow_provider_ckpt.core.wave_messages import BatchTask

RETRY_ATTEMPTS = "retry-attempts"
"""Name, without prefix, of the header with the number of times that the record was tried again, by retries of its batch
and by replays.
"""


def with_headers(
    dead_letters: Iterable[DeadLetter], task: BatchTask, pipeline: Pipeline, *, epoch: int, at: datetime | None = None
) -> list[DeadLetter]:
    """Return the dead letters of one attempt of a batch with all their headers.

    The dead letters of a replay keep the headers that describe the record's origin. The headers that the record itself
    had in the source are removed unless ``dead_letter_queue.include_original_headers`` is set.

    :param dead_letters: the attempt's dead letters; they have only the headers that describe the record's origin
    :param task: the batch
    :param pipeline: the pipeline's declaration
    :param epoch: epoch of the run
    :param at: value of the ``timestamp`` header for records without a time of their own; by default now
    """
    queue = pipeline.dead_letter_queue
    prefix = queue.header_prefix
    transform, sink = pipeline.transform, pipeline.sink
    written = {f"{prefix}timestamp": (at or datetime.now(UTC)).isoformat()}
    common = {
        "pipeline": pipeline.name,
        "destination": sink.place,
        "filter": transform.where,
        "transform": json.dumps(transform.select, ensure_ascii=False) if transform.select else None,
        "batch": str(task.key),
        "epoch": str(epoch),
    }
    more = {prefix + name: value for name, value in common.items() if value}
    keep = queue.include_original_headers
    return [
        replace(
            dead_letter,
            headers=written | _headers(dead_letter, task, prefix, traced=queue.include_stack_trace) | more,
            original_headers=dead_letter.original_headers if keep else (),
        )
        for dead_letter in dead_letters
    ]


def _headers(dead_letter: DeadLetter, task: BatchTask, prefix: str, *, traced: bool) -> dict[str, str]:
    """Return the headers of one dead letter: origin, error, stack trace and number of retries.

    :param dead_letter: the dead letter
    :param task: the batch
    :param prefix: prefix of the header names
    :param traced: whether to add the ``stack-trace`` header
    """
    replayed = is_replay(task)
    origin = (
        dict(dead_letter.headers) if replayed else {prefix + name: value for name, value in dead_letter.headers.items()}
    )
    before = int(origin.get(prefix + RETRY_ATTEMPTS, "0")) + 1 if replayed else 0
    trace = {f"{prefix}stack-trace": dead_letter.error.trace or _error_text(dead_letter.error)} if traced else {}
    return (
        origin
        | trace
        | {
            f"{prefix}error": dead_letter.error.message,
            f"{prefix}error-type": dead_letter.error.type.value,
            prefix + RETRY_ATTEMPTS: str(before + task.finished),
        }
    )


def _error_text(error: ErrorInfo) -> str:
    """Return an error without traceback as one line for the ``stack-trace`` header: type, SQLSTATE and message."""
    return f"{error.type.value}{f' (SQLSTATE {error.sqlstate})' if error.sqlstate else ''}: {error.message}"
