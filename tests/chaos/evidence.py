"""Compare a replicated table, the sink's receipts and the ledger after a crash.

One function reads the databases, and another, without any access to them, judges the result. So a test can pass it a
result with any fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.ranges import Range
from tests.services.tables import execute

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Entry:
    """A receipt, of one batch (sink) or of a range (ledger).

    :param seq: the batch's number, None for a range receipt
    """

    range: Range
    read: int
    delivered: int
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The state of one pipeline's source, target, receipts and ledger.

    :param expected: the range that the source's ids span
    :param source_rows: ``count(*)`` of the source, whose ids are unique
    :param target_rows: ``count(*)`` of the target
    :param target_ids: ``count(distinct id)`` of the target
    :param missing: source rows that no target row equals
    :param sink: receipts in the sink
    :param ledger: range receipts in the ledger
    :param committed: the ledger's checkpoint
    :param unresolved: batches that the ledger does not hold to be resolved
    """

    expected: Range
    source_rows: int
    target_rows: int
    target_ids: int
    missing: int
    sink: Sequence[Entry]
    ledger: Sequence[Entry]
    committed: int
    unresolved: int


@dataclass(frozen=True, slots=True)
class Findings:
    """The conclusions from the evidence.

    :param lost: source rows that never arrived, or arrived changed
    :param doubled: target rows beyond one for each id
    :param faults: everything that does not balance, in words; empty if all is well
    """

    lost: int
    doubled: int
    faults: list[str] = field(default_factory=list)


def judge(evidence: Evidence) -> Findings:
    """Compare tables, receipts and ledger with each other."""
    doubled = evidence.target_rows - evidence.target_ids
    faults = []
    if evidence.missing:
        faults.append(f"{evidence.missing} source rows are not in the target")
    if doubled:
        faults.append(f"{doubled} target rows are doubled")
    if evidence.target_ids != evidence.source_rows:
        faults.append(f"the target has {evidence.target_ids} distinct ids, the source {evidence.source_rows}")
    faults += _tiling("sink", evidence.sink, evidence.expected)
    faults += _tiling("ledger", evidence.ledger, evidence.expected)
    for name, entries in (("sink", evidence.sink), ("ledger", evidence.ledger)):
        read, delivered = sum(entry.read for entry in entries), sum(entry.delivered for entry in entries)
        if read != evidence.source_rows or delivered != evidence.target_rows:
            faults.append(f"{name}: its receipts count {read} rows read and {delivered} delivered")
    seqs = [entry.seq for entry in evidence.sink]
    if len(set(seqs)) != len(seqs):
        faults.append("sink: a batch has two receipts")
    if evidence.committed < evidence.expected.end:
        faults.append(f"ledger: the checkpoint stands at {evidence.committed}, not {evidence.expected.end}")
    if evidence.unresolved:
        faults.append(f"ledger: {evidence.unresolved} batches are unresolved")
    return Findings(evidence.missing, doubled, faults)


def gather(dsn: str, ledger: Ledger, pipeline: str, source: str, target: str) -> Evidence:
    """Read tables, receipts and ledger from the databases.

    :param dsn: of the database that holds both tables and the sink's receipts
    """
    [(rows, first, last)] = execute(dsn, f"SELECT count(*), min(id), max(id) + 1 FROM {source}")
    [(target_rows, target_ids)] = execute(dsn, f"SELECT count(*), count(DISTINCT id) FROM {target}")
    [(missing,)] = execute(dsn, f"SELECT count(*) FROM (TABLE {source} EXCEPT TABLE {target}) AS missing")
    partitions = [record.partition for record in ledger.partitions(pipeline).values()]
    return Evidence(
        Range(first, last),
        rows,
        target_rows,
        target_ids,
        missing,
        sink_receipts(dsn, pipeline),
        [Entry(item.range, item.counts.read, item.counts.delivered) for item in ledger.receipts(pipeline)],
        min((partition.committed for partition in partitions), default=0),
        sum(len(partition.blocking) for partition in partitions),
    )


def sink_receipts(dsn: str, pipeline: str) -> list[Entry]:
    """The pipeline's receipts, straight from the sink's table."""
    rows = execute(
        dsn,
        "SELECT range_start, range_end, read, delivered, seq FROM ckpt_sink_receipt WHERE pipeline = %s",
        parameters=[pipeline],
    )
    return [Entry(Range(start, end), read, delivered, seq) for start, end, read, delivered, seq in rows]


def _tiling(name: str, entries: Iterable[Entry], expected: Range) -> list[str]:
    """Return the places where the entries leave a gap, overlap, or end too early."""
    ordered = sorted(entries, key=lambda entry: entry.range)
    if not ordered:
        return [f"{name}: there are no receipts"]
    faults = []
    for before, after in itertools.pairwise(ordered):
        if before.range.end < after.range.start:
            faults.append(f"{name}: no receipt for [{before.range.end}, {after.range.start})")
        elif before.range.end > after.range.start:
            faults.append(f"{name}: receipts {before.range} and {after.range} overlap")
    if ordered[0].range.start > expected.start or ordered[-1].range.end < expected.end:
        faults.append(
            f"{name}: receipts reach from {ordered[0].range.start} to {ordered[-1].range.end}, not {expected}"
        )
    return faults
