"""Range receipts: the merged receipts of adjacent batches below the checkpoint.

Their number grows with the gaps between them, not with the batches (an idea of Wave).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from airflow_provider_ckpt.core.batch import Batch, BatchState, Counts
from airflow_provider_ckpt.core.ranges import Range


class KnownReceipts(NamedTuple):
    """The part of a partition whose receipts the ledger knows; the sink need not return those again.

    :param generation: receipts of older generations are known, those of newer ones are not
    :param position: receipts of this generation are known if they end here or before
    """

    generation: int
    position: int

    def covers(self, generation: int, end: int) -> bool:
        """Return whether the ledger knows the receipt with a generation and an end position."""
        return end <= self.position if generation == self.generation else generation < self.generation


@dataclass(frozen=True, slots=True)
class RangeReceipt:
    """The sum of the receipts of a contiguous range.

    :param generation: the batches' generation
    :param partition: the batches' partition
    :param range: the range of all batches together
    :param counts: the sums of their record counts
    :param batches: number of batches
    :param rejected: number of batches that were rejected, that is dead-lettered as a whole
    :param skipped: number of batches that were skipped
    :param sent: number of batches that were sent at most once and never confirmed
    :param at: when the newest receipt was claimed, if known
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
        """The rest of the sums, over the same range.

        :param part: sums of batches that are counted in these
        """
        return replace(
            self,
            counts=self.counts - part.counts,
            batches=self.batches - part.batches,
            rejected=self.rejected - part.rejected,
        )

    @classmethod
    def of(cls, batch: Batch) -> RangeReceipt:
        """Create the range receipt of one resolved batch."""
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
    """Merge adjacent and overlapping range receipts of one partition and generation."""
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
