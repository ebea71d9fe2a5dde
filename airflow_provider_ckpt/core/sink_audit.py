"""Audit: compare a pipeline's ledger with its sink, by receipts, dead letters, and rows and files of the target.

The functions are pure: the content of ledger and sink is given as values, and each difference is returned with its
batch and the step that resolves it. The sink's receipt of a batch that is unresolved in the ledger is no difference,
since the next run reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink
from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey, attempt_of
from airflow_provider_ckpt.core.range_receipts import RangeReceipt, ReceiptsByRange, group_by_partition
from airflow_provider_ckpt.core.ranges import subtract
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict

_MAX_NAMED = 10
"""Maximum number of batches and ranges that one message names."""


class DifferenceKind(StrEnum):
    """Kind of difference between ledger and sink, as ``airflow ckpt audit`` reports it.

    - ``ReceiptMissing``, ``ReceiptUnknown``: only the ledger, or only the sink, knows a receipt
    - ``ReceiptDiffers``: both know a receipt, with different content
    - ``DeadLettersDiffer``: the sink does not have as many dead letters of a batch as its receipt counts
    - ``DeadLetterIndexDiffers``: the ledger's index does not name as many dead letters of a batch as its receipt counts
    - ``TargetRowsDiffer``: the target does not have as many rows as the receipts count as delivered
    - ``SourceFilesDiffer``: ledger and sink assign positions to different source files
    - ``TargetFileDamaged``: a file of the target is damaged
    - ``SinkChanged``: the sink is not as the ledger left it, for example because it was restored from a backup
    """

    RECEIPT_MISSING = "ReceiptMissing"
    RECEIPT_UNKNOWN = "ReceiptUnknown"
    RECEIPT_DIFFERS = "ReceiptDiffers"
    DEAD_LETTERS_DIFFER = "DeadLettersDiffer"
    INDEX_DIFFERS = "DeadLetterIndexDiffers"
    ROWS_DIFFER = "TargetRowsDiffer"
    FILES_DIFFER = "SourceFilesDiffer"
    FILE_DAMAGED = "TargetFileDamaged"
    SINK_CHANGED = "SinkChanged"


_TO_DO = {
    DifferenceKind.RECEIPT_MISSING: "Restore the receipt from a backup of the sink, or rewind to its range if the rows "
    "are gone as well.",
    DifferenceKind.RECEIPT_UNKNOWN: "Run the pipeline: the next run reads the sink's receipts and imports it.",
    DifferenceKind.RECEIPT_DIFFERS: "Keep a copy of both. The sink's receipt was written with the rows; compare the "
    "ledger with a backup.",
    DifferenceKind.DEAD_LETTERS_DIFFER: "Restore the sink's dead letters from a backup; discard what cannot be "
    "restored.",
    DifferenceKind.INDEX_DIFFERS: "Keep a copy of the ledger and compare it with a backup; the sink's receipt was "
    "written with the dead letters.",
    DifferenceKind.ROWS_DIFFER: "If others write to the target, or it had rows before the first run, add "
    "--shared-target. Otherwise compare the target with a backup.",
    DifferenceKind.FILES_DIFFER: "Ledger and sink assign positions to different source files: run nothing, and restore "
    "a backup of the ledger from before they differed.",
    DifferenceKind.SINK_CHANGED: "Run the pipeline: nothing is sent, and the error names the commands to choose from "
    "(`airflow ckpt accept-sink`).",
    DifferenceKind.FILE_DAMAGED: "Restore the file from a backup. If there is none, remove it from the table with the "
    "table format's own repair, and rewind to before its rows.",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between ledger and sink.

    :param kind: the kind of difference
    :param partition: the partition's id; empty if the difference concerns the whole target
    :param batch: the batch; None if no single batch is affected
    :param message: description of what the ledger and the sink have
    """

    kind: DifferenceKind
    partition: str
    batch: BatchKey | None
    message: str

    @property
    def to_do(self) -> str:
        """Text that tells the user how to resolve the difference."""
        return _TO_DO[self.kind]


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """Content of the ledger for one pipeline at one moment, for the comparison with the sink.

    :param passed: the range receipts of every generation
    :param batches: the batches beyond the checkpoints, and those that were sent at most once and never confirmed
    :param generations: the current generation of each partition
    :param dead_letters: number of dead letters in the index, by attempt
    :param busy: whether a run holds the lease
    :param accepted: losses of the sink that a user has accepted
    """

    passed: Sequence[RangeReceipt]
    batches: Mapping[BatchKey, Batch]
    generations: Mapping[str, int]
    dead_letters: Mapping[AttemptKey, int]
    busy: bool = False
    accepted: AcceptedSink = field(default_factory=AcceptedSink)


@dataclass(slots=True)
class ReceiptComparison:
    """Result of comparing a sink's receipts with the ledger.

    :param settled: receipts that the ledger knows, alone or as part of a range receipt
    :param unsettled: receipts of batches that are unresolved in the ledger; the next run settles them
    :param collected: receipts of ended generations and side partitions that garbage collection has deleted from the
        ledger
    :param differences: the differences found
    """

    settled: list[Receipt] = field(default_factory=list)
    unsettled: list[Receipt] = field(default_factory=list)
    collected: list[Receipt] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def compare_receipts(recorded: LedgerSnapshot, receipts: Iterable[Receipt]) -> ReceiptComparison:
    """Compare the sink's receipts with the ledger's.

    Key, range, verdict, epoch, attempt and counts are compared. Of receipts that the ledger has merged into a range
    receipt, only their number, the sums of their counts, and the number of rejected batches are compared.

    :param recorded: the content of the ledger
    :param receipts: all receipts of this ledger and pipeline in the sink
    :return: the receipts by their state in the ledger, and the differences
    """
    found = ReceiptComparison()
    passed_by_place = group_by_partition(recorded.accepted.merged(recorded.passed))
    sums = {partition: _RangeReceipts(items, recorded.accepted) for partition, items in passed_by_place.items()}
    seen: set[BatchKey] = set()
    for receipt in sorted(receipts, key=lambda receipt: receipt.key):
        seen.add(receipt.key)
        passed = sums.get((receipt.key.generation, receipt.key.partition))
        if receipt.key not in recorded.batches and passed is not None and passed.add(receipt):
            found.settled.append(receipt)
        else:
            _compare_beyond_checkpoint(recorded, receipt, found)
    for batch in recorded.batches.values():
        if batch.receipt is not None and batch.key not in seen and not recorded.accepted.covers(batch.key, batch.range):
            message = (
                f"the ledger has a receipt of {batch.range} ({batch.receipt.verdict.value}), and the sink has none"
            )
            found.differences.append(_difference(DifferenceKind.RECEIPT_MISSING, batch.key, message))
    for passed in sums.values():
        found.differences += passed.differences()
    return found


def compare_dead_letters(
    recorded: LedgerSnapshot, receipts: Iterable[Receipt], dead_letters: Mapping[AttemptKey, int]
) -> Iterator[Difference]:
    """Compare each receipt's count of dead letters with the sink's dead letters and with the ledger's index.

    A difference is yielded for each receipt whose count does not match.

    :param recorded: the content of the ledger
    :param receipts: receipts that the ledger knows
    :param dead_letters: number of dead letters in the sink, for each attempt that a receipt names
    """
    for receipt in receipts:
        source, counted = attempt_of(receipt), receipt.counts.dead_lettered
        stored, indexed = dead_letters.get(source, 0), recorded.dead_letters.get(source, 0)
        if stored != counted:
            message = (
                f"its receipt counts {counted} dead letters of attempt {receipt.attempt}, and the sink holds {stored}"
            )
            yield _difference(DifferenceKind.DEAD_LETTERS_DIFFER, receipt.key, message)
        if indexed != counted:
            message = f"its receipt counts {counted} dead letters, and the ledger's index names {indexed}"
            yield _difference(DifferenceKind.INDEX_DIFFERS, receipt.key, message)


def compare_rows(rows: int, delivered: int, accepted_missing: int = 0) -> Iterator[Difference]:
    """Compare the number of rows in a target of mode ``append`` with the number that the receipts count as delivered.

    One difference is yielded if the numbers differ, else nothing.

    :param rows: number of rows in the target
    :param delivered: number of rows that the receipts in the sink count as delivered
    :param accepted_missing: number of rows that were missing when a user accepted the sink; negative if there were more
        rows than delivered
    """
    expected = delivered - accepted_missing
    if rows != expected:
        which = "fewer" if rows < expected else "more"
        accepted = (
            f", {abs(accepted_missing)} {'less' if accepted_missing > 0 else 'more'} by the acceptance of the sink"
        )
        message = (
            f"the target holds {rows} rows, {abs(rows - expected)} {which} than the {expected} that its receipts "
            f"delivered{accepted if accepted_missing else ''}"
        )
        yield Difference(DifferenceKind.ROWS_DIFFER, "", None, message)


def compare_target_files(damaged: Iterable[str]) -> Iterator[Difference]:
    """Yield a difference for each damaged file of the target.

    :param damaged: for each damaged file, a sentence that names the file and the damage
    """
    for message in damaged:
        yield Difference(DifferenceKind.FILE_DAMAGED, "", None, message)


def knows_batch(recorded: LedgerSnapshot, receipt: Receipt) -> bool:
    """Return whether the ledger knows the batch of a receipt: as a batch in any state, or as part of a range receipt.

    :param recorded: the content of the ledger
    :param receipt: a receipt of the sink
    """
    if receipt.key in recorded.batches:
        return True
    partition = (receipt.key.generation, receipt.key.partition)
    return any(
        (item.generation, item.partition) == partition
        and item.range.start <= receipt.range.start
        and receipt.range.end <= item.range.end
        for item in recorded.passed
    )


def _compare_beyond_checkpoint(recorded: LedgerSnapshot, receipt: Receipt, found: ReceiptComparison) -> None:
    """Compare a receipt of the sink that is in no range receipt with the ledger's batch of the same key.

    :param recorded: the content of the ledger
    :param receipt: the receipt
    :param found: the result of the comparison. The receipt is added to its ``unsettled``, ``settled`` or ``collected``
        receipts; a difference is added if ledger and sink differ in the receipt, or the ledger does not know it
    """
    key = receipt.key
    batch = recorded.batches.get(key)
    if batch is not None:
        if batch.receipt is None:
            found.unsettled.append(receipt)
            return
        found.settled.append(receipt)
        differ = [
            f"{name} {ours} and {theirs}"
            for name, ours, theirs in (
                ("range", batch.receipt.range, receipt.range),
                ("verdict", batch.receipt.verdict.value, receipt.verdict.value),
                ("epoch", batch.receipt.epoch, receipt.epoch),
                ("attempt", batch.receipt.attempt, receipt.attempt),
                ("counts", _text(batch.receipt.counts), _text(receipt.counts)),
            )
            if ours != theirs
        ]
        if differ:
            message = f"ledger and sink differ in {'; '.join(differ)}"
            found.differences.append(_difference(DifferenceKind.RECEIPT_DIFFERS, key, message))
    elif key.is_side_partition or key.generation < recorded.generations.get(key.partition, 0):
        found.collected.append(receipt)
    else:
        message = f"the sink has a receipt of {receipt.range} ({receipt.verdict.value}) that the ledger does not know"
        found.differences.append(_difference(DifferenceKind.RECEIPT_UNKNOWN, key, message))


class _RangeReceipts(ReceiptsByRange):
    """Range receipts of one partition and generation, to be compared with the sink's receipts in their ranges.

    :param items: the range receipts; they do not overlap
    :param accepted: losses of the sink that a user has accepted, which are no differences
    """

    def __init__(self, items: Iterable[RangeReceipt], accepted: AcceptedSink) -> None:
        super().__init__(items)
        self._accepted = accepted

    def differences(self) -> Iterator[Difference]:
        """Yield the differences between each range receipt and the sink's receipts in its range.

        Numbers of receipts, sums of counts, and numbers of rejected batches are compared. Losses that a user has
        accepted are not differences.
        """
        for item, receipts in self.pairs():
            found = list(self._differences_of(item, receipts))
            lost = self._accepted.lost_part(item)
            if found and lost is not None:
                found = list(self._differences_of(item.without(lost), receipts))
            yield from found

    def _differences_of(self, item: RangeReceipt, receipts: Sequence[Receipt]) -> Iterator[Difference]:
        expected = item.batches - item.skipped - item.sent
        found = sum(receipt.verdict is not Verdict.VOID for receipt in receipts)
        (key,) = [receipt.key for receipt in receipts] if len(receipts) == 1 == item.batches else [None]
        if not expected <= found <= expected + item.sent:
            message = f"the ledger counts {expected} receipts in {item.range}, and the sink has {found}"
            kind = DifferenceKind.RECEIPT_MISSING if found < expected else DifferenceKind.RECEIPT_DIFFERS
            missing = self._missing(item, receipts) if found < expected else []
            first = missing[0] if len(missing) == 1 else key
            yield Difference(kind, item.partition, first, message + _missing_clause(missing, item, receipts))
            return
        if found > expected:
            return  # a batch that was sent at most once was confirmed after the ledger was read
        sums = sum((receipt.counts for receipt in receipts), Counts())
        rejected = sum(receipt.verdict is Verdict.REJECTED for receipt in receipts)
        if sums != item.counts:
            message = f"in {item.range} the ledger counts {_text(item.counts)}, and the sink's receipts {_text(sums)}"
            yield Difference(DifferenceKind.RECEIPT_DIFFERS, item.partition, key, message)
        if rejected != item.rejected:
            message = f"in {item.range} the ledger counts {item.rejected} rejected batches, and the sink {rejected}"
            yield Difference(DifferenceKind.RECEIPT_DIFFERS, item.partition, key, message)

    def _missing(self, item: RangeReceipt, receipts: Sequence[Receipt]) -> list[BatchKey]:
        """Return the batches of a range receipt that have no receipt in the sink, for the error message.

        A range receipt stores no seqs. The seqs of its batches are inferred from those of the sink's receipts before
        and after its range.

        :param item: the range receipt
        :param receipts: the sink's receipts in its range
        """
        every = [receipt for _, receipts_of_item in self.pairs() for receipt in receipts_of_item]
        numbers = {receipt.key.seq for receipt in receipts}
        before = [r.key.seq for r in every if r.range.end <= item.range.start]
        after = [r.key.seq for r in every if r.range.start >= item.range.end]
        first = max(before, default=-1) + 1
        end = min(after, default=first + item.batches)
        absent = [number for number in range(first, end) if number not in numbers]
        return [BatchKey(item.generation, item.partition, number) for number in absent]


def _missing_clause(missing: Sequence[BatchKey], item: RangeReceipt, receipts: Sequence[Receipt]) -> str:
    gaps = subtract(item.range, [receipt.range for receipt in receipts])
    named = ", ".join(map(str, missing[:_MAX_NAMED])) + (", …" if len(missing) > _MAX_NAMED else "")
    where = ", ".join(map(str, gaps[:_MAX_NAMED]))
    return f"; without a receipt: {named}" + (f" at {where}" if where else "")


def _difference(kind: DifferenceKind, key: BatchKey, message: str) -> Difference:
    return Difference(kind, key.partition, key, message)


def _text(counts: Counts) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.to_json().items())
