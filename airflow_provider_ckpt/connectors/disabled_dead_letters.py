"""Halt a run if a batch has dead letters and ``dead_letter_queue.enabled`` is false, rather than drop their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import DeadLetterQueueError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.delivery import DeadLetterQueue
    from airflow_provider_ckpt.connectors.batch_content import BatchContent
    from airflow_provider_ckpt.core.wave_messages import BatchTask


def refuse_if_disabled(content: BatchContent, task: BatchTask, queue: DeadLetterQueue) -> None:
    """Raise an error if a batch has dead letters and the pipeline has disabled them (semantics, sections 7 and 10).

    :param content: the batch after the transform
    :param task: the batch, for the message
    :param queue: the pipeline's dead letter settings
    :raises DeadLetterQueueError: naming the position and error of the batch's first dead letter
    """
    if content.dead_letters and not queue.enabled:
        first = content.dead_letters[0]
        raise DeadLetterQueueError(
            f"the record at position {first.position} cannot be delivered ({first.error.type.value}: "
            f"{first.error.message}), and dead_letter_queue.enabled is false; nothing of the batch was sent.",
            batch=str(task.key),
            position=first.position,
            hint="Correct the record in the source, or set dead_letter_queue.enabled: true.",
        )
