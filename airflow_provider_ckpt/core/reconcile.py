"""Reconcile a partition with the sink's receipts at the start of a run (semantics, section 4).

Batches that have a receipt are resolved, and attempts that an earlier run left open are ended. A receipt that the
ledger does not know, or knows with another range, is imported: the sink has such receipts if the ledger was lost or
restored from a backup. The sink's receipts then prevail over the ledger, because they were written in the same
transaction as the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from airflow_provider_ckpt.core.batch import BLOCKING, VERDICT_STATE, Batch, BatchState
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.rewind import rewind
from airflow_provider_ckpt.core.tickets import Event

LOST_REWIND = "the sink holds receipts of a rewind that this ledger has forgotten"
"""Reason in the audit log for a rewind that was lost with a part of the ledger, and that reconciliation repeats."""


def reconcile(partition: Partition, receipts: Iterable[Receipt], *, epoch: int) -> list[Event]:
    """Apply the sink's receipts to a partition, then end the attempts that older epochs left open.

    Call this function after the sink was fenced with ``epoch``: an older attempt without a receipt then never gets one.

    Receipts of older generations are ignored. A receipt of a newer generation shows that this ledger was restored from
    a backup that is older than a rewind; the rewind is then repeated. Its target position is lost, but it was neither
    after the start of the first receipt of the newer generation nor after the checkpoint of the generation before. The
    new generation starts at the lower of these two positions: everything before it has a verdict in the generation
    before. If the rewind went further back, the records in between are not read again; the run logs a warning.

    :param partition: the partition, which is changed
    :param receipts: the sink's receipts of this partition that the ledger does not know, see
        :class:`~.receipt.KnownReceipts`
    :param epoch: the lease's epoch
    :return: the events for the audit log
    """
    return [event for events in reconcile_by_generation(partition, receipts, epoch=epoch) for event in events]


def reconcile_by_generation(partition: Partition, receipts: Iterable[Receipt], *, epoch: int) -> Iterator[list[Event]]:
    """Reconcile like :func:`reconcile`, yielding the events of each generation as a list.

    Every list except the last ends with the rewind to the next generation. The caller can thus store the state of the
    ended generation before the next one replaces it.

    :param partition: the partition, which is changed
    :param receipts: the sink's receipts of this partition that the ledger does not know
    :param epoch: the lease's epoch
    """
    found: dict[int, list[Receipt]] = {}
    for receipt in receipts:
        found.setdefault(receipt.key.generation, []).append(receipt)
    events = _settle_generation(partition, found.get(partition.generation, []), epoch)
    for generation in sorted(number for number in found if number > partition.generation):
        position = min(partition.committed, *(receipt.range.start for receipt in found[generation]))
        yield events + rewind(partition, position, generation=generation, reason=LOST_REWIND)
        events = _settle_generation(partition, found[generation], epoch)
    yield events


def _settle_generation(partition: Partition, receipts: Sequence[Receipt], epoch: int) -> list[Event]:
    """Settle or import receipts of the partition's generation, and end the open attempts of older epochs.

    The checkpoint moves once, at the end.

    :param partition: the partition, which is changed
    :param receipts: receipts of the partition's current generation
    :param epoch: the lease's epoch
    :return: the events for the audit log
    """
    unmatched: list[Receipt] = []
    events: list[Event] = []
    for receipt in receipts:
        if matches_batch(partition, receipt):
            events += partition.ack(receipt, advance=False)
        else:
            unmatched.append(receipt)
    events += import_receipts(partition, unmatched, advance=False)
    for seq, batch in partition.in_flight.items():
        if batch.epoch is not None and batch.epoch < epoch:
            events += partition.fence(partition.in_flight_ticket(seq))[1]
    return events + partition.advance()


def matches_batch(partition: Partition, receipt: Receipt) -> bool:
    """Return whether a receipt belongs to a batch that the ledger has begun; otherwise the receipt must be imported.

    The ranges of the batch and the receipt must be equal. A batch that the checkpoint has passed counts as begun, a
    superseded batch does not.

    :param partition: the partition
    :param receipt: a receipt of the partition's current generation
    """
    batch = partition.batches.get(receipt.key.seq)
    if batch is None:
        return receipt.key.seq < partition.next_seq and receipt.range.end <= partition.committed
    return batch.state is not BatchState.SUPERSEDED and batch.started and batch.range == receipt.range


def import_receipts(partition: Partition, receipts: Iterable[Receipt], *, advance: bool = True) -> list[Event]:
    """Add resolved batches for receipts of the sink, and supersede the unresolved batches that the receipts overlap.

    The seqs of new batches then follow those of the receipts (``next_seq``). The parts of the superseded batches'
    ranges that no receipt covers are returned by :meth:`~.partition_view.PartitionView.gaps` from then on, to be
    planned again.

    :param partition: the partition, which is changed
    :param receipts: receipts of this partition and generation
    :param advance: whether to move the checkpoint; False if the caller does so later
    :return: the events for the audit log
    """
    events: list[Event] = []
    unresolved = _RangeIndex(partition.blocking.values())
    for receipt in receipts:
        seq, span = receipt.key.seq, receipt.range
        for other in sorted({seq, *unresolved.overlapping(span)}):
            if other in partition.batches and partition.batches[other].state in BLOCKING:
                events += partition.supersede(other)
        if span.end > partition.committed:
            partition.batches[seq] = Batch(
                receipt.key,
                span,
                state=VERDICT_STATE[receipt.verdict],
                attempts=max(receipt.attempt, 1),
                receipt=receipt,
            )
        partition.next_seq = max(partition.next_seq, seq + 1)
        partition.planned_end = max(partition.planned_end, span.end)
        detail = {"range": [span.start, span.end]}
        events.append(Event("receipt_imported", partition.id, partition.generation, seq, detail))
    return events + (partition.advance() if advance else [])


class _RangeIndex:
    """Index that finds the batches whose ranges overlap a given range by binary search.

    :param batches: batches whose ranges do not overlap each other
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = sorted(batches, key=lambda batch: batch.range)
        self._starts = [batch.range.start for batch in self._batches]

    def overlapping(self, span: Range) -> Iterator[int]:
        """Yield the numbers (``seq``) of the batches that overlap a range, the last range first."""
        for at in range(bisect_left(self._starts, span.end) - 1, -1, -1):
            batch = self._batches[at]
            if batch.range.end <= span.start:
                return
            yield batch.key.seq
