"""Halt a run that needs a dead letter while ``dead_letter_queue.enabled`` is false: no record is dropped instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import DeadLetterQueueError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.delivery import DeadLetterQueue
    from airflow_provider_ckpt.connectors.batch_content import BatchContent
    from airflow_provider_ckpt.core.wave import BatchTask


def refuse_if_disabled(content: BatchContent, task: BatchTask, queue: DeadLetterQueue) -> None:
    """Raise an error if a batch has dead letters and the pipeline has disabled them (semantics, sections 7 and 10).

    :param content: the batch after the transform
    :param task: the batch, for the message
    :param queue: the pipeline's dead letter settings
    :raises DeadLetterQueueError: naming the first of them
    """
    if content.dead_letters and not queue.enabled:
        first = content.dead_letters[0]
        raise DeadLetterQueueError(
            f"position {first.position} calls for a dead letter ({first.error.type.value}: {first.error.message}), "
            "but dead_letter_queue.enabled is false; nothing of the batch was sent.",
            batch=str(task.key),
            position=first.position,
            hint="Repair the record, or set dead_letter_queue.enabled: true.",
        )
