"""Import receipts that the ledger does not know, or knows with another range (semantics, section 4.3).

A sink holds such receipts if the ledger was lost or restored from a backup. The sink's receipts then prevail over the
ledger, because they were written in the same transaction as the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from airflow_provider_ckpt.core.batch import BLOCKING, VERDICT_STATE, Batch, BatchState
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.tickets import Event


def matches_batch(partition: Partition, receipt: Receipt) -> bool:
    """Return whether the ledger knows the batch of a receipt with the same range; if not, the receipt must be imported.

    A batch that the checkpoint has passed counts as known.

    :param partition: the partition
    :param receipt: a receipt of the partition's current generation
    """
    batch = partition.batches.get(receipt.key.seq)
    if batch is None:
        return receipt.key.seq < partition.next_seq and receipt.range.end <= partition.committed
    return batch.state is not BatchState.SUPERSEDED and batch.started and batch.range == receipt.range


def import_receipts(partition: Partition, receipts: Iterable[Receipt], *, advance: bool = True) -> list[Event]:
    """Add resolved batches for receipts of the sink, and supersede the unresolved batches that the receipts overlap.

    ``next_seq`` moves past the seqs of the receipts. The parts of the superseded batches' ranges that no receipt covers
    are returned by :meth:`~.partition_view.PartitionView.gaps` from then on, to be planned again.

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
        """Yield the seqs of the batches that overlap a range, the one with the largest range start first."""
        for at in range(bisect_left(self._starts, span.end) - 1, -1, -1):
            batch = self._batches[at]
            if batch.range.end <= span.start:
                return
            yield batch.key.seq
