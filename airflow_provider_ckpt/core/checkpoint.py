"""The checkpoint of a partition, and the cancellation watermark, which it may not pass (semantics, section 2)."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_ckpt.core.batch import RESOLVED, Batch
from airflow_provider_ckpt.core.ranges import contiguous_end


def cancellation_watermark(batches: Mapping[int, Batch]) -> int | None:
    """Return the smallest seq of a cancelled batch that is neither started again nor resolved; None if there is none.

    :param batches: the batches that are not below the checkpoint, by seq
    """
    return min((seq for seq, batch in batches.items() if batch.cancelled), default=None)


def next_checkpoint(committed: int, batches: Mapping[int, Batch]) -> int:
    """Return the end of the contiguous resolved ranges from the checkpoint on, up to the cancellation watermark.

    :param committed: the checkpoint so far
    :param batches: the batches that are not below it, by seq
    """
    watermark = cancellation_watermark(batches)
    resolved = (
        batch.range
        for seq, batch in batches.items()
        if batch.state in RESOLVED and (watermark is None or seq < watermark) and batch.range.end > committed
    )
    return contiguous_end(committed, resolved)
