"""Compare the results of a trial with the expected outcome of each record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from tests.chaos.crash_points.records import Fate, Record, by_part, of_fate, places


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a trial.

    :param rows: source partition and id of every row of the target, in its order
    :param ordered: whether that order means anything
    :param dead_letters: the id of every dead letter that counts
    :param receipts: all that the sink holds
    :param blocking: batches that the ledger does not hold to be resolved
    :param audit: what the ledger's own audit complains of
    """

    rows: Sequence[tuple[int, int]]
    ordered: bool
    dead_letters: Sequence[int]
    receipts: Sequence[Receipt]
    blocking: int = 0
    audit: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of a trial: records lost and doubled, and faults.

    :param lost: records of which nothing is found where they ought to be
    :param doubled: rows and dead letters beyond the one of each record
    :param faults: all that does not balance, in words
    """

    lost: int = 0
    doubled: int = 0
    faults: list[str] = field(default_factory=list)


def balance(records: Sequence[Record], found: Found) -> Balance:
    """Return the records that were lost or doubled, and all other faults."""
    rows = Counter(found.rows)
    dead_letters = Counter(found.dead_letters)
    good = set(places(of_fate(records, Fate.DELIVERED)))
    bad = {record.id for record in of_fate(records, Fate.DEAD_LETTERED)}
    lost = sorted(good - rows.keys()) + sorted(bad - dead_letters.keys())
    doubled = [item for item, times in (*rows.items(), *dead_letters.items()) for _ in range(times - 1)]
    faults = [
        *_said("lost", lost),
        *_said("there twice", doubled),
        *_said("delivered, and must not be", sorted(rows.keys() - good)),
        *_said("dead-lettered, and must not be", sorted(dead_letters.keys() - bad)),
        *(_disorder(found.rows, records) if found.ordered else ()),
        *_receipts(found.receipts, records),
        *found.audit,
    ]
    if found.blocking:
        faults.append(f"the ledger holds {found.blocking} batches to be unresolved")
    return Balance(len(lost), len(doubled), faults)


def _said(what: str, items: Sequence[object]) -> list[str]:
    return [f"{len(items)} {what}: {', '.join(map(str, items[:5]))}"] if items else []


def _disorder(rows: Iterable[tuple[int, int]], records: Sequence[Record]) -> list[str]:
    """Return the source partitions whose records came in another order than they were sent; duplicates are ignored."""
    wanted = by_part(places(of_fate(records, Fate.DELIVERED)))
    found = by_part(dict.fromkeys(rows))
    return [
        f"partition {part} is out of order: {found[part][:8]} …"
        for part, ids in wanted.items()
        if sorted(found.get(part, [])) == sorted(ids) and found[part] != ids
    ]


def _receipts(receipts: Sequence[Receipt], records: Sequence[Record]) -> list[str]:
    total = sum((receipt.counts for receipt in receipts), Counts())
    fates = Counter(record.fate for record in records)
    wanted = Counts(len(records), fates[Fate.DELIVERED], fates[Fate.FILTERED], fates[Fate.DEAD_LETTERED])
    faults = [f"SumIdentity of {r.key}: {r.counts.to_json()}" for r in receipts if not r.counts.is_balanced]
    faults += [f"{r.key} is {r.verdict.value}" for r in receipts if r.verdict is not Verdict.DELIVERED]
    if total != wanted:
        faults.append(f"receipts count {total.to_json()}, not {wanted.to_json()}")
    by_partition: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        by_partition.setdefault(receipt.key.partition, []).append(receipt)
    return faults + _tiling(by_partition)


def _tiling(by_partition: Mapping[str, Sequence[Receipt]]) -> list[str]:
    faults = []
    for name, receipts in by_partition.items():
        ordered = sorted(receipts, key=lambda receipt: receipt.range)
        for before, after in pairwise(ordered):
            if after.range.start != before.range.end:
                faults.append(f"{name}: receipts {before.range} and {after.range} do not meet")
    return faults
