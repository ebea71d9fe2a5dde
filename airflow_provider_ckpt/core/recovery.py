"""What a source still owes: the low watermark, what expires below it, and what nothing accounts for above it.

Wave's recovery (semantics, section 5), as pure decisions. Late records of receipted ranges are found by comparing the
receipts' counts with what the source shows now; the caller asks the source.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Any

from airflow_provider_ckpt.core.batch import RESOLVED, BatchKey, BatchState
from airflow_provider_ckpt.core.ranges import Range, merge, subtract
from airflow_provider_ckpt.core.receipts import RangeReceipt
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.core.view import PartitionView

EXPIRED = "expired_unreceipted"
"""Kind of the event that says: the recovery window, or the source's own retention, has passed this range, and it has no
receipt."""

Shown = Callable[[str, Sequence[Range]], Sequence[int] | None]
"""How many records a source partition shows in each of some ranges now; None where it can never show more."""


@dataclass(frozen=True, slots=True)
class Stand:
    """How a partition stood at some time."""

    generation: int
    committed: int
    planned_end: int


class Why(StrEnum):
    """Why a stretch is missing."""

    UNRECEIPTED = "unreceipted"
    """No receipt and no batch: the ledger's own rules make it impossible, so it is an alarm."""

    LATE = "late"
    """The source shows more records than the receipt says were read."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A stretch of a partition that is unaccounted for.

    :param read: records that the receipts of the stretch tell of, where it has one
    :param shown: records that the source shows there now, where it was asked
    """

    partition: str
    range: Range
    why: Why
    read: int | None = None
    shown: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {
            "partition": self.partition,
            "range": [self.range.start, self.range.end],
            "why": self.why.value,
            "read": self.read,
            "shown": self.shown,
        }


@dataclass(frozen=True, slots=True)
class Account:
    """What the ledger knows of a partition above its low watermark.

    :param receipts: those that reach beyond it, by position; the ones that begin beyond it are one a batch
    :param settled: how the partition stood ``settle_lag`` ago; None where it had not begun, so all of it is young
    """

    partition: PartitionView
    low: int
    receipts: Sequence[RangeReceipt] = ()
    settled: Stand | None = None
    resolved: Sequence[RangeReceipt] = field(init=False)

    def __post_init__(self) -> None:
        pending = [RangeReceipt.of(batch) for batch in self.partition.pending_acks.values()]
        object.__setattr__(self, "resolved", [*self.receipts, *pending])


def low_watermark(low: int, committed: int, was: Stand | None) -> int:
    """How far the low watermark moves: to where the checkpoint stood a window ago.

    What was planned by then and still keeps the checkpoint waiting is passed as well: the window bounds what recovery
    looks at, and :func:`expired` tells what it leaves behind. It never goes back.

    :param was: how the partition stood a window ago, in this generation; None where that is not known
    """
    if was is None:
        return low
    return max(low, was.planned_end if was.planned_end > committed else was.committed)


def expired(partition: PartitionView, low: int, to: int) -> list[Event]:
    """An event for each range without a receipt that the low watermark passes on its way from ``low``.

    They go on blocking the checkpoint, so nothing is skipped; but recovery will not look at them any more.
    """
    start = max(low, partition.committed)
    if to <= start:
        return []
    resolved = [batch.range for batch in partition.batches.values() if batch.state in RESOLVED]
    owners = [batch for batch in partition.batches.values() if batch.state not in (*RESOLVED, BatchState.SUPERSEDED)]
    events = []
    for gap in subtract(Range(start, to), resolved):
        owned = [
            (Range(max(batch.range.start, gap.start), min(batch.range.end, gap.end)), batch.key.seq)
            for batch in owners
            if batch.range.overlaps(gap)
        ]
        free = [(span, None) for span in subtract(gap, (span for span, _ in owned))]
        for span, seq in sorted([*owned, *free], key=lambda item: item[0]):
            detail = {"range": [span.start, span.end]}
            events.append(Event(EXPIRED, partition.id, partition.generation, seq, detail))
    return events


def missing(accounts: Iterable[Account], *, before: datetime, shown: Shown | None = None) -> list[Missing]:
    """What is above the low watermarks and unaccounted for, each position once, in order.

    :param accounts: of every partition of a pipeline
    :param before: receipts claimed after this are too young to be compared
    :param shown: asks the source; without it, only what has no receipt is found
    """
    known = list(accounts)
    sides: dict[str, list[Account]] = {}
    for account in known:
        key = BatchKey(account.partition.generation, account.partition.id, 0)
        if key.side and not key.letters:
            sides.setdefault(key.source, []).append(account)
    found = [item for account in known for item in unreceipted(account)]
    for account in known:
        name = account.partition.id
        receipts = countable(account, sides.get(name, ()), before=before) if account.partition.limit is None else []
        counts = shown(name, [receipt.range for receipt in receipts]) if shown is not None and receipts else None
        if counts is not None:
            found += late(name, receipts, counts)
    return sorted(found, key=lambda item: (item.partition, item.range))


def unreceipted(account: Account) -> list[Missing]:
    """Ranges above the low watermark that were planned, have no receipt, and belong to no batch."""
    part = account.partition
    if account.settled is None or account.settled.generation != part.generation:
        return []
    start, end = max(account.low, part.base), min(part.planned_end, account.settled.planned_end)
    if end <= start:
        return []
    live = [batch.range for batch in part.batches.values() if batch.state is not BatchState.SUPERSEDED]
    gaps = subtract(Range(start, end), [*(receipt.range for receipt in account.receipts), *live])
    return [Missing(part.id, gap, Why.UNRECEIPTED) for gap in gaps]


def countable(account: Account, sides: Iterable[Account], *, before: datetime) -> list[RangeReceipt]:
    """The receipts of a source partition that may have missed late records, in order.

    Left out are those below the low watermark, those claimed after ``before``, and those that speak of nothing read
    (skipped, or sent and never confirmed). What a side partition has read again since is subsumed by its receipts,
    which stand in here; what one is still to read has an owner.

    :param sides: the side partitions that re-read stretches of this one
    """
    owned: list[Range] = []
    newer: list[RangeReceipt] = []
    for side in sides:
        part = side.partition
        if part.limit is not None and part.committed < part.limit:
            owned.append(Range(part.committed, part.limit))
        if part.generation > account.partition.generation:  # what a rewind ended speaks of an older reading
            newer += side.resolved
    chosen: list[RangeReceipt] = []
    covered: list[Range] = []
    newer.sort(key=_generation, reverse=True)
    for _, group in groupby(newer, key=_generation):
        exposed = [receipt for receipt in group if _exposed(receipt.range, covered)]
        chosen += exposed
        covered = merge([*covered, *(receipt.range for receipt in exposed)])
    older = [receipt for receipt in account.resolved if _exposed(receipt.range, covered)]
    found = [
        receipt
        for receipt in [*chosen, *older]
        if receipt.range.start >= account.low
        and not receipt.skipped
        and not receipt.sent
        and (receipt.at is None or receipt.at <= before)
        and not any(receipt.range.overlaps(span) for span in owned)
    ]
    return sorted(found, key=lambda receipt: receipt.range)


def _generation(receipt: RangeReceipt) -> int:
    return receipt.generation


def _exposed(span: Range, covered: Sequence[Range]) -> bool:
    """Whether some of a range lies outside merged ranges, given in order."""
    at = bisect_left(covered, span.start + 1, key=lambda item: item.start) - 1
    return at < 0 or covered[at].end < span.end


def late(partition: str, receipts: Sequence[RangeReceipt], shown: Sequence[int]) -> list[Missing]:
    """Ranges in which the source shows more records than the receipts say were read, each position once.

    :param receipts: as :func:`countable` gives them
    :param shown: what the source shows in each of them
    """
    found: list[Missing] = []
    reached: int | None = None
    for receipt, records in zip(receipts, shown, strict=True):
        if records <= receipt.counts.read or (reached is not None and receipt.range.end <= reached):
            continue
        start = receipt.range.start if reached is None else max(receipt.range.start, reached)
        span = Range(start, receipt.range.end)
        found.append(Missing(partition, span, Why.LATE, receipt.counts.read, records))
        reached = span.end
    return found


def superfluous(marks: Sequence[datetime], *, cutoff: datetime, thin_before: datetime) -> list[datetime]:
    """Which of a partition's marks need not be kept: how it stood before ``cutoff`` will not be asked.

    The newest one up to the cutoff stays, since it says how the partition stood then. Between the cutoff and
    ``thin_before`` the last mark of each hour is enough.

    :param marks: their times, in order
    """
    gone: list[datetime] = []
    for mark, later in pairwise(marks):
        same_hour = mark.replace(minute=0, second=0, microsecond=0) == later.replace(minute=0, second=0, microsecond=0)
        if later <= cutoff or (later < thin_before and same_hour):
            gone.append(mark)
    return gone
