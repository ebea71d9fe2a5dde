"""Check that read = delivered + filtered + dead-lettered (``SumIdentity``) before anything of a batch is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.disabled_dead_letters import refuse_if_disabled
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.receipt import Counts

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.delivery import DeadLetterQueue
    from airflow_provider_ckpt.connectors.batch_content import BatchContent
    from airflow_provider_ckpt.core.wave_messages import BatchTask


def checked_counts(content: BatchContent, task: BatchTask, queue: DeadLetterQueue) -> Counts:
    """Return the record counts of a batch, after checking that they add up and that its dead letters are allowed.

    :param content: the batch after the transform
    :param task: the batch, for messages
    :param queue: the pipeline's dead letter settings
    :raises CkptError: if the counts do not add up (``SumIdentity``)
    :raises DeadLetterQueueError: if there are dead letters and the pipeline allows none
    """
    dead_lettered = content.already_stored + len(content.dead_letters)
    counts = Counts(content.read, content.rows.num_rows, content.filtered, dead_lettered)
    if not counts.is_balanced:
        raise CkptError(
            f"SumIdentity: {counts.read} records were read, but {counts.delivered} are to be delivered, "
            f"{counts.filtered} were filtered and {counts.dead_lettered} rejected; nothing of the batch was sent.",
            batch=str(task.key),
            hint="Nothing is lost. This is a defect of this package; please report it.",
        )
    refuse_if_disabled(content, task, queue)
    return counts
