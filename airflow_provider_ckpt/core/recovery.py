"""Find the records of a source above the low watermark that were never read, for the action ``recover``.

Some records appear in the source after their range was read, for example rows of a transaction that committed late.
To find them, receipts are compared with the records that the source contains now. Ranges that were planned or read less
than ``recovery.settle_lag`` ago are left out, because late records are common there; a later recovery compares them.
The functions are pure; the caller reads the source (semantics, section 5).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from airflow_provider_ckpt.core.acknowledgements import AcknowledgingPartition
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind, side_kind
from airflow_provider_ckpt.core.partition_history import PartitionSnapshot
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range, merge, subtract


class MissingReason(StrEnum):
    """Reason why a range is reported as missing.

    - ``unreceipted``: neither a receipt nor a batch covers it; the ledger's rules make this impossible, so it shows a
      defect
    - ``late``: the source contains records that were not there when the range was read
    - ``changed``: the source contains other records than were read, and it is unknown which of them came late
    """

    UNRECEIPTED = "unreceipted"
    LATE = "late"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class MissingRange:
    """A range of a partition that contains, or may contain, records that were never read.

    :param partition: the partition's id
    :param range: the range
    :param reason: the reason why the range is reported
    :param read: number of records that were read according to the receipts; None if there is no receipt
    :param shown: number of records that the source now contains in the range; None if the source was not read
    :param ranges: positions of late records at which no record was read before; reading them delivers no record twice
    :param shared: positions of late records at which other records were read before; reading them again would deliver
        the other records twice
    """

    partition: str
    range: Range
    reason: MissingReason
    read: int | None = None
    shown: int | None = None
    ranges: tuple[Range, ...] = ()
    shared: tuple[int, ...] = ()

    @property
    def readable_alone(self) -> bool:
        """True if all missing records can be read without reading delivered records a second time."""
        return self.reason is MissingReason.UNRECEIPTED or (bool(self.ranges) and not self.shared)

    def to_json(self) -> dict[str, Any]:
        """Return the range as a JSON-ready dict, for the output of ``recover``."""
        return {
            "partition": self.partition,
            "range": [self.range.start, self.range.end],
            "reason": self.reason.value,
            "read": self.read,
            "shown": self.shown,
            "late": [[span.start, span.end] for span in self.ranges],
            "shared": list(self.shared),
        }


@dataclass(frozen=True, slots=True)
class ReceiptedRange:
    """A range with its receipt, and with the receipts of side partitions that have read parts of it again since.

    The number of records in these receipts is compared with the source, to find records that appeared later.

    :param receipt: range receipt of the whole range
    :param again: range receipts of later recoveries and range replays that overlap it; oldest first
    :param pending: ranges that side partitions are still going to read; their records are not missing
    """

    receipt: RangeReceipt
    again: tuple[RangeReceipt, ...] = ()
    pending: tuple[Range, ...] = ()

    @property
    def added(self) -> tuple[RangeReceipt, ...]:
        """Range receipts of side partitions ``recovery:...`` that lie inside the range.

        Their records appeared in the source after the range was first read.
        """
        return tuple(item for item in self.again if _is_of_recovery(item) and _within(item.range, self.receipt.range))

    @property
    def records(self) -> int:
        """Number of records that were read in the range: when it was first read, and by recoveries of late records."""
        return self.receipt.counts.read + sum(item.counts.read for item in self.added)


@dataclass(frozen=True, slots=True)
class UnreadRecords:
    """Records that the source contains in a range, and that were never read.

    :param shown: number of records that the range contains now
    :param late: number of records that were not read; 0 if it is only known that the range has changed
    :param ranges: positions of late records at which no other record was read; empty if they are not known
    :param shared: positions of late records at which other records were read
    """

    shown: int
    late: int
    ranges: tuple[Range, ...] = ()
    shared: tuple[int, ...] = ()


SourceComparison = Callable[[str, Sequence[ReceiptedRange]], Sequence[UnreadRecords | None] | None]
"""Function that compares the receipts of a source partition with the records that the source contains now.

It receives the partition's id and its receipted ranges. It returns the :class:`UnreadRecords` of each range, or None
for a range without any. It returns None instead of the list if the source cannot be compared.
"""


@dataclass(frozen=True, slots=True)
class PartitionAccount:
    """Receipts and batches of a partition above its low watermark, as the ledger knows them.

    A position of the source that no receipt and no batch covers is missing.

    :param partition: the partition
    :param low_watermark: the partition's low watermark
    :param receipts: range receipts that end after the low watermark, by position; a range receipt that starts at or
        after the low watermark is that of a single batch
    :param settled: snapshot of the partition ``recovery.settle_lag`` ago; None if the partition did not exist yet,
        so that all of it is too young to be compared
    :ivar resolved: ``receipts``, and a range receipt for each resolved batch beyond the checkpoint
    """

    partition: AcknowledgingPartition
    low_watermark: int
    receipts: Sequence[RangeReceipt] = ()
    settled: PartitionSnapshot | None = None
    resolved: Sequence[RangeReceipt] = field(init=False)

    def __post_init__(self) -> None:
        pending = [RangeReceipt.of(batch) for batch in self.partition.pending_acks.values()]
        object.__setattr__(self, "resolved", [*self.receipts, *pending])


def find_missing(
    accounts: Iterable[PartitionAccount], *, before: datetime, compare: SourceComparison | None = None
) -> list[MissingRange]:
    """Return the ranges above the low watermarks that contain, or may contain, records that were never read.

    The ranges are in order of partition and position, and contain each position once.

    :param accounts: the receipts and batches of every partition of a pipeline
    :param before: receipts claimed after this time are too young to be compared
    :param compare: function that compares the receipted ranges with the source; None to find only ranges without a
        receipt, without reading the source
    """
    known = list(accounts)
    sides: dict[str, list[PartitionAccount]] = {}
    for account in known:
        key = BatchKey(account.partition.generation, account.partition.id, 0)
        if key.is_side_partition and not key.is_replay:
            sides.setdefault(key.source, []).append(account)
    found = [item for account in known for item in find_unreceipted(account)]
    for account in known:
        name = account.partition.id
        receipted_ranges = (
            comparable_ranges(account, sides.get(name, ()), before=before) if account.partition.limit is None else []
        )
        surpluses = compare(name, receipted_ranges) if compare is not None and receipted_ranges else None
        if surpluses is not None:
            found += find_late(name, receipted_ranges, surpluses)
    return sorted(found, key=lambda item: (item.partition, item.range))


def find_unreceipted(account: PartitionAccount) -> list[MissingRange]:
    """Return the ranges above the low watermark that were planned but have neither a receipt nor a batch.

    Positions that were planned less than ``recovery.settle_lag`` ago are left out. The ledger's rules make such ranges
    impossible, so any result shows a defect.

    :param account: the receipts and batches of a partition
    """
    part = account.partition
    if account.settled is None or account.settled.generation != part.generation:
        return []
    start, end = max(account.low_watermark, part.base), min(part.planned_end, account.settled.planned_end)
    if end <= start:
        return []
    covered = [batch.range for batch in part.batches.values() if batch.state is not BatchState.SUPERSEDED]
    gaps = subtract(Range(start, end), [*(receipt.range for receipt in account.receipts), *covered])
    return [MissingRange(part.id, gap, MissingReason.UNRECEIPTED) for gap in gaps]


def comparable_ranges(
    account: PartitionAccount, sides: Iterable[PartitionAccount], *, before: datetime
) -> list[ReceiptedRange]:
    """Return the ranges of a source partition that have receipts and can be compared with the source, in order.

    The following are left out: ranges below the low watermark, receipts claimed after ``before``, and receipts of
    batches that were skipped, or sent and never confirmed.

    A receipt of a recovery that read late records is added to the range that it completes. Other receipts of side
    partitions replace the earlier receipts whose ranges they cover completely. A range that a side partition is still
    going to read is added to the ranges that it overlaps, as ``pending``.

    :param account: receipts and batches of the source partition
    :param sides: receipts and batches of the side partitions that read ranges of this source partition again
    :param before: receipts claimed after this time are too young to be compared
    :return: the ranges, each with the receipts of the side partitions that have read parts of it again
    """
    pending_ranges: list[Range] = []
    newer: list[RangeReceipt] = []
    for side in sides:
        part = side.partition
        if part.limit is not None and part.committed < part.limit:
            pending_ranges.append(Range(part.committed, part.limit))
        if part.generation > account.partition.generation:  # side partitions before the last rewind do not count
            newer += side.resolved
    chosen: list[RangeReceipt] = []
    added: list[RangeReceipt] = []
    covered: list[Range] = []
    newer.sort(key=_generation, reverse=True)
    for _, group in groupby(newer, key=_generation):
        exposed = [receipt for receipt in group if _is_partly_uncovered(receipt.range, covered)]
        added += [receipt for receipt in exposed if _adds_late_records(receipt, newer, account.resolved)]
        full_receipts = [receipt for receipt in exposed if receipt not in added]
        chosen += full_receipts
        covered = merge([*covered, *(receipt.range for receipt in full_receipts)])
    older = [receipt for receipt in account.resolved if _is_partly_uncovered(receipt.range, covered)]
    found = [
        ReceiptedRange(
            receipt,
            tuple(_later_receipts(receipt, [*chosen, *added])),
            tuple(span for span in merge(pending_ranges) if receipt.range.overlaps(span)),
        )
        for receipt in [*chosen, *older]
        if receipt.range.start >= account.low_watermark
        and not receipt.skipped
        and not receipt.sent
        and (receipt.at is None or receipt.at <= before)
    ]
    return sorted(found, key=lambda receipted: receipted.receipt.range)


def _adds_late_records(receipt: RangeReceipt, newer: Sequence[RangeReceipt], older: Sequence[RangeReceipt]) -> bool:
    """Return whether a range receipt belongs to a recovery that read late records inside a larger range read before.

    Such a receipt adds to the earlier one. A recovery's receipt of exactly the same range replaces the earlier receipt
    instead: it belongs to a range that the sink had lost and that was sent again.

    :param receipt: range receipt of a side partition
    :param newer: range receipts of all side partitions of the same source partition
    :param older: range receipts of the source partition itself
    """
    if not _is_of_recovery(receipt):
        return False
    earlier = [item for item in newer if item.generation < receipt.generation and not _is_of_recovery(item)]
    return any(_within(receipt.range, item.range) and receipt.range != item.range for item in [*earlier, *older])


def _later_receipts(receipt: RangeReceipt, sides: Iterable[RangeReceipt]) -> list[RangeReceipt]:
    """Return the side partitions' range receipts that overlap a range receipt and are newer, oldest first.

    A receipt is newer than ``receipt`` if its generation is higher.

    :param receipt: the older range receipt
    :param sides: range receipts of side partitions
    """
    later = [item for item in sides if item.generation > receipt.generation and item.range.overlaps(receipt.range)]
    return sorted(later, key=_generation)


def _is_of_recovery(receipt: RangeReceipt) -> bool:
    return side_kind(receipt.partition) is SideKind.RECOVERY


def _within(inner: Range, outer: Range) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _generation(receipt: RangeReceipt) -> int:
    return receipt.generation


def _is_partly_uncovered(span: Range, covered: Sequence[Range]) -> bool:
    """Return whether a part of a range lies outside all of some other ranges.

    :param span: the range
    :param covered: ranges in ascending order that neither overlap nor touch, as :func:`~.ranges.merge` returns them
    """
    at = bisect_left(covered, span.start + 1, key=lambda item: item.start) - 1
    return at < 0 or covered[at].end < span.end


def not_covered(ranges: Iterable[Range], covered: Iterable[Range]) -> list[Range]:
    """Return the ranges that other ranges do not cover completely; a range that is partly covered is returned whole.

    :param ranges: the ranges
    :param covered: the other ranges
    """
    merged = merge(covered)
    return [span for span in ranges if _is_partly_uncovered(span, merged)]


def find_late(
    partition: str, receipted_ranges: Sequence[ReceiptedRange], surpluses: Sequence[UnreadRecords | None]
) -> list[MissingRange]:
    """Return the ranges in which the source contains records that were never read, each position once, in order.

    :param partition: the source partition's id
    :param receipted_ranges: the ranges that were read, as :func:`comparable_ranges` returns them
    :param surpluses: the unread records of each range, as a :data:`SourceComparison` returns them; None for a range
        without any
    """
    found: list[MissingRange] = []
    reached: int | None = None
    for receipted, surplus in zip(receipted_ranges, surpluses, strict=True):
        span = receipted.receipt.range
        if surplus is None or (reached is not None and span.end <= reached):
            continue
        start = span.start if reached is None else max(span.start, reached)
        found.append(
            MissingRange(
                partition,
                Range(start, span.end),
                MissingReason.LATE if surplus.late else MissingReason.CHANGED,
                receipted.records,
                surplus.shown,
                tuple(Range(max(item.start, start), item.end) for item in surplus.ranges if item.end > start),
                tuple(position for position in surplus.shared if position >= start),
            )
        )
        reached = span.end
    return found
