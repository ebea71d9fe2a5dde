"""The order of a pinned partition's batches: after a failed one, no later one is attempted (semantics, section 6)."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_ckpt.core.batch_key import BatchKey


class StoppedPartitions:
    """Partitions of a wave in which a batch has failed, so that their later batches are returned as not attempted.

    A pipeline that is not pinned promises no order, so nothing stops its partitions.

    :param pinned: whether the pipeline is pinned
    :param failed: keys of batches that have failed already
    """

    def __init__(self, *, pinned: bool, failed: Iterable[BatchKey] = ()) -> None:
        self._pinned = pinned
        self._stopped: set[str] = set()
        for key in failed:
            self.add(key)

    def add(self, key: BatchKey) -> None:
        """Stop the partition of a batch that has failed."""
        if self._pinned:
            self._stopped.add(key.partition)

    def __contains__(self, key: BatchKey) -> bool:
        """Return whether an earlier batch of the same partition has failed."""
        return key.partition in self._stopped
