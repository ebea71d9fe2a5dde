"""Retry up to ``max_dlq_retries`` times to store dead letters that their store refuses; then halt the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.core.errors import CkptError, DeadLetterQueueError
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.delivery import DeadLetterQueue

RETRY_SECONDS = 1.0
"""Pause in seconds before a failed write of dead letters is retried."""

T = TypeVar("T")


class DeadLettersRefusedError(CkptError):
    """Error of a dead letter store that cannot store one batch's dead letters although the store itself is available.

    A retry may succeed.
    """


def store_dead_letters(
    store: Callable[[], T],
    dead_letters: Sequence[DeadLetter],
    task: BatchTask,
    queue: DeadLetterQueue,
    refusal: type[CkptError] = DeadLettersRefusedError,
) -> T:
    """Store dead letters of a batch; if they are refused, retry ``max_dlq_retries`` times, one second apart.

    :param store: function that stores the dead letters, possibly together with the rest of the batch
    :param dead_letters: the dead letters, for messages
    :param task: the batch, for messages
    :param queue: the pipeline's dead letter settings
    :param refusal: class of the errors after which ``store`` is called again; all others are raised at once
    :return: the result of ``store``
    :raises DeadLetterQueueError: if all retries failed
    """
    retries = 0
    while True:
        try:
            return store()
        except refusal as error:
            if retries == queue.max_dlq_retries:
                raise DeadLetterQueueError(
                    f"{error.message.removesuffix('.')}. The batch's dead letters could not be stored, so nothing of "
                    "it was sent.",
                    batch=str(task.key),
                    position=dead_letters[0].position if error.position is None else error.position,
                    sqlstate=error.sqlstate,
                    hint=error.hint or "Repair the destination of dead_letter_queue, then run again.",
                ) from error
            retries += 1
            time.sleep(RETRY_SECONDS)
