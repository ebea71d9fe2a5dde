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
from airflow_provider_ckpt.core.partition_view import PartitionView
from airflow_provider_ckpt.core.ranges import Range, merge, subtract
from airflow_provider_ckpt.core.receipts import RangeReceipt
from airflow_provider_ckpt.core.tickets import Event

EXPIRED = "expired_unreceipted"
"""Kind of the event that says: the recovery window, or the source's own retention, has passed this range, and it has no
receipt."""

WITNESS = "witness"
"""Key of a partition's state: what the last planning saw of the source, by which the next tells that positions below
the checkpoint were given out since. A person's rewind drops it; a recovery that accounts for all that was seen sets it
anew."""


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
    """The source shows records that were not there when the range was read."""

    CHANGED = "changed"
    """The source shows other records than were read, and which of them came late cannot be told."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A stretch of a partition that is unaccounted for.

    :param read: records that the receipts of the stretch tell of, where it has one
    :param shown: records that the source shows there now, where it was asked
    :param spans: the late records' positions, where none was read; what is to be read again
    :param shared: positions of late records at which others were read, so that reading them again would double those
    """

    partition: str
    range: Range
    why: Why
    read: int | None = None
    shown: int | None = None
    spans: tuple[Range, ...] = ()
    shared: tuple[int, ...] = ()

    @property
    def told_apart(self) -> bool:
        """Whether all that is missing can be read without anything else."""
        return self.why is Why.UNRECEIPTED or (bool(self.spans) and not self.shared)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {
            "partition": self.partition,
            "range": [self.range.start, self.range.end],
            "why": self.why.value,
            "read": self.read,
            "shown": self.shown,
            "late": [[span.start, span.end] for span in self.spans],
            "shared": list(self.shared),
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """A range that was read once as a whole, and of which parts may have been read again since.

    :param receipt: receipt of the range as a whole
    :param again: receipts of recovery, which add late records, and of replayed ranges; oldest first
    :param pending: stretches of the range that side partitions are still to read, so that their records have an owner
    """

    receipt: RangeReceipt
    again: tuple[RangeReceipt, ...] = ()
    pending: tuple[Range, ...] = ()

    @property
    def added(self) -> tuple[RangeReceipt, ...]:
        """The receipts that add records to those that were read at first."""
        return tuple(item for item in self.again if _recovers(item) and _within(item.range, self.receipt.range))

    @property
    def records(self) -> int:
        """Number of records that were read, not counting any record twice."""
        return self.receipt.counts.read + sum(item.counts.read for item in self.added)


@dataclass(frozen=True, slots=True)
class Surplus:
    """Records that the source shows in a range and that were not read.

    :param shown: number of records that the range shows now
    :param late: number of those that were not read; 0 if it is only known that the range has changed
    :param spans: positions of late records at which no record was read; empty if they are not known
    :param shared: positions of late records at which others were read
    """

    shown: int
    late: int
    spans: tuple[Range, ...] = ()
    shared: tuple[int, ...] = ()


Shown = Callable[[str, Sequence[Reading]], Sequence[Surplus | None] | None]
"""Function that returns the :class:`Surplus` of each of a source partition's readings: records of its range that were
neither read nor are pending. It returns None instead of a list where the source cannot show them."""


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
        readings = comparable(account, sides.get(name, ()), before=before) if account.partition.limit is None else []
        surpluses = shown(name, readings) if shown is not None and readings else None
        if surpluses is not None:
            found += late(name, readings, surpluses)
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


def comparable(account: Account, sides: Iterable[Account], *, before: datetime) -> list[Reading]:
    """Return the readings of a source partition whose ranges may have got late records since, in order.

    Ranges below the low watermark are left out, as are those claimed after ``before``, and those whose receipt does not
    stand for anything read (skipped, or sent and never confirmed). A receipt of recovery adds to the reading that it
    completes. The other receipts of side partitions, which have read ranges again since, replace the earlier readings
    that they cover completely. Ranges that a side partition is still to read have an owner.

    :param account: the source partition
    :param sides: the side partitions that re-read stretches of this one
    :param before: receipts claimed after this are too young to be compared
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
    added: list[RangeReceipt] = []
    covered: list[Range] = []
    newer.sort(key=_generation, reverse=True)
    for _, group in groupby(newer, key=_generation):
        exposed = [receipt for receipt in group if _exposed(receipt.range, covered)]
        added += [receipt for receipt in exposed if _adds(receipt, newer, account.resolved)]
        whole = [receipt for receipt in exposed if receipt not in added]
        chosen += whole
        covered = merge([*covered, *(receipt.range for receipt in whole)])
    older = [receipt for receipt in account.resolved if _exposed(receipt.range, covered)]
    found = [
        Reading(
            receipt,
            tuple(_since(receipt, [*chosen, *added])),
            tuple(span for span in merge(owned) if receipt.range.overlaps(span)),
        )
        for receipt in [*chosen, *older]
        if receipt.range.start >= account.low
        and not receipt.skipped
        and not receipt.sent
        and (receipt.at is None or receipt.at <= before)
    ]
    return sorted(found, key=lambda reading: reading.receipt.range)


def _adds(receipt: RangeReceipt, newer: Sequence[RangeReceipt], older: Sequence[RangeReceipt]) -> bool:
    """Whether a receipt of recovery completes an earlier reading of a range around it, and does not replace it.

    One of just that range replaces it: what a sink had lost was sent again.
    """
    if not _recovers(receipt):
        return False
    earlier = [item for item in newer if item.generation < receipt.generation and not _recovers(item)]
    return any(_within(receipt.range, item.range) and receipt.range != item.range for item in [*earlier, *older])


def _since(receipt: RangeReceipt, sides: Iterable[RangeReceipt]) -> list[RangeReceipt]:
    """Return the side partitions' receipts of what they have read again of a range since, oldest first."""
    later = [item for item in sides if item.generation > receipt.generation and item.range.overlaps(receipt.range)]
    return sorted(later, key=_generation)


def _recovers(receipt: RangeReceipt) -> bool:
    return receipt.partition.startswith("recovery:")


def _within(inner: Range, outer: Range) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _generation(receipt: RangeReceipt) -> int:
    return receipt.generation


def _exposed(span: Range, covered: Sequence[Range]) -> bool:
    """Whether some of a range lies outside merged ranges, given in order."""
    at = bisect_left(covered, span.start + 1, key=lambda item: item.start) - 1
    return at < 0 or covered[at].end < span.end


def outside(spans: Iterable[Range], covered: Iterable[Range]) -> list[Range]:
    """Return the ranges of which some lies outside others.

    :param spans: the ranges
    :param covered: the others
    """
    merged = merge(covered)
    return [span for span in spans if _exposed(span, merged)]


def late(partition: str, readings: Sequence[Reading], surpluses: Sequence[Surplus | None]) -> list[Missing]:
    """Ranges in which the source shows what was not read, each position once.

    :param readings: as :func:`comparable` gives them
    :param surpluses: what the source shows of each of them
    """
    found: list[Missing] = []
    reached: int | None = None
    for reading, surplus in zip(readings, surpluses, strict=True):
        span = reading.receipt.range
        if surplus is None or (reached is not None and span.end <= reached):
            continue
        start = span.start if reached is None else max(span.start, reached)
        found.append(
            Missing(
                partition,
                Range(start, span.end),
                Why.LATE if surplus.late else Why.CHANGED,
                reading.records,
                surplus.shown,
                tuple(Range(max(item.start, start), item.end) for item in surplus.spans if item.end > start),
                tuple(position for position in surplus.shared if position >= start),
            )
        )
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
