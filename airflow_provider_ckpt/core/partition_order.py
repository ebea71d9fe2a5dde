"""Keep the order of the batches of a partition: after a failed batch, no later one is sent (semantics, section 6).

This applies to pinned pipelines, which promise that a partition's batches take effect in order.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_ckpt.core.batch_key import BatchKey


class StoppedPartitions:
    """Partitions of which a batch has failed in a wave; a lane reports their later batches as not attempted.

    This keeps the order of a pinned pipeline. A pipeline that is not pinned promises no order; this set then stays
    empty.

    :param pinned: whether the pipeline is pinned: a partition's batches take effect in order
    :param failed: keys of batches that have failed already
    """

    def __init__(self, *, pinned: bool, failed: Iterable[BatchKey] = ()) -> None:
        self._pinned = pinned
        self._stopped: set[str] = set()
        for key in failed:
            self.add(key)

    def add(self, key: BatchKey) -> None:
        """Stop the partition of a batch that has failed; without effect if the pipeline is not pinned."""
        if self._pinned:
            self._stopped.add(key.partition)

    def __contains__(self, key: BatchKey) -> bool:
        """Return whether a batch must not be attempted, because a batch of the same partition has failed."""
        return key.partition in self._stopped
