"""Reject a whole batch: each of its records becomes a dead letter, and none is delivered as a row.

A batch is rejected because of its error (``core/retry_policy.py``), or when its attempts are used up and
``retry.on_exhausted`` is ``dlq`` (``core/on_exhausted.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.dead_letters import originals

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_protocol import Reader
    from airflow_provider_ckpt.core.wave_messages import BatchTask
    from airflow_provider_ckpt.spark.lane.gather import GatheredBatch

_WITHOUT_CAUSE = ErrorInfo(ErrorType.RETRY_EXHAUSTED, "all attempts of the batch failed")


def reject_all(gathered: GatheredBatch, reader: Reader, task: BatchTask, *, raw: bool) -> None:
    """Read a batch's records from the source again, and make a dead letter of each, with the error of the batch.

    :param gathered: the batch, which is changed: it gets the dead letters, and their number as the number of records
        read
    :param reader: reader of the batch's source
    :param task: the batch as it was planned, with the error because of which it is rejected; without an error, the dead
        letters say that all attempts of the batch failed
    :param raw: whether the source yields bytes rather than columns
    """
    gathered.dead_letters = originals.from_batch(reader, task, task.error or _WITHOUT_CAUSE, raw=raw)
    gathered.read = len(gathered.dead_letters)
