"""Receipts sorted into the range receipts that they went into, so that sums can be compared with what they sum up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from airflow_provider_ckpt.core.batch import Receipt
from airflow_provider_ckpt.core.receipts import RangeReceipt

Place = tuple[int, str]
"""A generation and a partition."""


def by_place(items: Iterable[RangeReceipt]) -> dict[Place, list[RangeReceipt]]:
    """Range receipts by generation and partition."""
    found: dict[Place, list[RangeReceipt]] = {}
    for item in items:
        found.setdefault((item.generation, item.partition), []).append(item)
    return found


class ReceiptsByRange:
    """The range receipts of one partition and generation, and the sink's receipts that went into each."""

    def __init__(self, items: Iterable[RangeReceipt]) -> None:
        self._items = sorted(items, key=lambda item: item.range)
        self._starts = [item.range.start for item in self._items]
        self._taken: list[list[Receipt]] = [[] for _ in self._items]

    def take(self, receipt: Receipt) -> bool:
        """Put a receipt with the range receipt that covers it; says whether one does."""
        at = bisect_right(self._starts, receipt.range.start) - 1
        if at < 0 or receipt.range.end > self._items[at].range.end:
            return False
        self._taken[at].append(receipt)
        return True

    def pairs(self) -> Iterator[tuple[RangeReceipt, Sequence[Receipt]]]:
        """Each range receipt with the receipts that it covers, in order."""
        yield from zip(self._items, self._taken, strict=True)
