"""Compute the checkpoint of a partition, and the cancellation watermark, which limits it (semantics, section 2).

A cancelled batch sets the cancellation watermark until the batch is begun again, resolved, skipped or superseded.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_ckpt.core.batch import RESOLVED, Batch
from airflow_provider_ckpt.core.ranges import contiguous_end


def cancellation_watermark(batches: Mapping[int, Batch]) -> int | None:
    """Return the smallest seq of a cancelled batch that is neither started again nor resolved.

    The checkpoint does not pass this batch. The result is None if there is no such batch.

    :param batches: the batches that are not below the checkpoint, by seq
    """
    return min((seq for seq, batch in batches.items() if batch.cancelled), default=None)


def next_checkpoint(committed: int, batches: Mapping[int, Batch]) -> int:
    """Return the position that the checkpoint can move to: the end of the resolved ranges that follow it without a gap.

    The checkpoint does not pass the cancellation watermark: a resolved batch with a larger seq than a cancelled one
    does not count.

    :param committed: the checkpoint so far
    :param batches: the batches that are not below it, by seq
    :return: the new checkpoint; ``committed`` if it cannot move
    """
    watermark = cancellation_watermark(batches)
    resolved = (
        batch.range
        for seq, batch in batches.items()
        if batch.state in RESOLVED and (watermark is None or seq < watermark) and batch.range.end > committed
    )
    return contiguous_end(committed, resolved)
