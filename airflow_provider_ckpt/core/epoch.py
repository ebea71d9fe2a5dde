"""Compute the epoch of a new lease, above every epoch that the ledger or the sink knows (semantics, section 4)."""

from __future__ import annotations


def next_epoch(granted: int, fence: int) -> int:
    """Return the epoch of a new lease: one more than the highest epoch that the ledger or the sink knows.

    :param granted: newest epoch that the ledger has granted
    :param fence: epoch of the sink's fence; higher than ``granted`` if the ledger was restored from a backup
    """
    return max(granted, fence) + 1
