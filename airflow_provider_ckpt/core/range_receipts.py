"""Define range receipts: sums of the receipts of adjacent batches, kept by the ledger in place of the single receipts.

Receipts below the low watermark are merged by ``ledger/store/receipts.py``, so that the ledger stays small: the number
of range receipts grows with the gaps between them, not with the number of batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt


@dataclass(frozen=True, slots=True)
class RangeReceipt:
    """The sum of the receipts of all batches in a contiguous range.

    :param generation: the batches' generation
    :param partition: the batches' partition
    :param range: the range of all batches together
    :param counts: the sums of their record counts
    :param batches: number of batches
    :param rejected: number of batches that were rejected, that is dead-lettered as a whole
    :param skipped: number of batches that were skipped
    :param sent: number of batches that were sent at most once and never confirmed
    :param at: when the newest receipt was claimed, UTC; None if unknown
    """

    generation: int
    partition: str
    range: Range
    counts: Counts
    batches: int
    rejected: int = 0
    skipped: int = 0
    sent: int = 0
    at: datetime | None = None

    def without(self, part: RangeReceipt) -> RangeReceipt:
        """Return this range receipt without some of its batches; its range stays the same.

        Their record counts, their number, and the number of the rejected ones among them are subtracted.

        :param part: a range receipt that sums up those batches
        """
        return replace(
            self,
            counts=self.counts - part.counts,
            batches=self.batches - part.batches,
            rejected=self.rejected - part.rejected,
        )

    @classmethod
    def of(cls, batch: Batch) -> RangeReceipt:
        """Create the range receipt of a single resolved batch, with zero counts if the batch has no receipt."""
        return cls(
            batch.key.generation,
            batch.key.partition,
            batch.range,
            batch.receipt.counts if batch.receipt else Counts(),
            1,
            int(batch.state is BatchState.REJECTED),
            int(batch.state is BatchState.SKIPPED),
            int(batch.state is BatchState.SENT),
            batch.receipt.at if batch.receipt else None,
        )


def merge_receipts(receipts: Iterable[RangeReceipt]) -> list[RangeReceipt]:
    """Merge adjacent and overlapping range receipts, and return the result in order of ranges.

    :param receipts: range receipts of one partition and one generation
    """
    groups: list[list[RangeReceipt]] = []
    end = 0
    for item in sorted(receipts, key=lambda receipt: receipt.range):
        if groups and item.range.start <= end:
            groups[-1].append(item)
            end = max(end, item.range.end)
        else:
            groups.append([item])
            end = item.range.end
    return [_sum(group) for group in groups]


def _sum(group: list[RangeReceipt]) -> RangeReceipt:
    first = group[0]
    counts = [item.counts for item in group]
    return RangeReceipt(
        first.generation,
        first.partition,
        Range(first.range.start, max(item.range.end for item in group)),
        Counts(
            sum(c.read for c in counts),
            sum(c.delivered for c in counts),
            sum(c.filtered for c in counts),
            sum(c.dead_lettered for c in counts),
        ),
        sum(item.batches for item in group),
        sum(item.rejected for item in group),
        sum(item.skipped for item in group),
        sum(item.sent for item in group),
        max((item.at for item in group if item.at is not None), default=None),
    )


Place = tuple[int, str]
"""Pair of a generation and the id of a partition."""


def group_by_partition(items: Iterable[RangeReceipt]) -> dict[Place, list[RangeReceipt]]:
    """Return range receipts as lists by generation and partition.

    Only range receipts of the same generation and partition can be merged or compared.
    """
    found: dict[Place, list[RangeReceipt]] = {}
    for item in items:
        found.setdefault((item.generation, item.partition), []).append(item)
    return found


class ReceiptsByRange:
    """The range receipts of one partition and generation, each with the sink's receipts that lie in its range.

    The sink has one receipt for each batch, so this grouping is needed to compare them with the ledger's range
    receipts.

    :param items: the range receipts; they do not overlap
    """

    def __init__(self, items: Iterable[RangeReceipt]) -> None:
        self._items = sorted(items, key=lambda item: item.range)
        self._starts = [item.range.start for item in self._items]
        self._receipts: list[list[Receipt]] = [[] for _ in self._items]

    def add(self, receipt: Receipt) -> bool:
        """Add a receipt of the sink to the range receipt whose range contains it.

        :return: False if there is no such range receipt; the receipt is not added then
        """
        at = bisect_right(self._starts, receipt.range.start) - 1
        if at < 0 or receipt.range.end > self._items[at].range.end:
            return False
        self._receipts[at].append(receipt)
        return True

    def pairs(self) -> Iterator[tuple[RangeReceipt, Sequence[Receipt]]]:
        """Yield each range receipt, in order of ranges, with the sink's receipts that were added to it."""
        yield from zip(self._items, self._receipts, strict=True)
