"""Define the losses of a sink that a user accepted by ``airflow ckpt accept-sink``: missing receipts and missing rows.

A batch is lost if the ledger knows its receipt and the sink no longer has it. With ``--resend`` its records are sent
again in new batches with receipts of their own, with ``--keep`` they are given up; the lost receipt remains missing. If
only the rows or only the receipts were lost, the number of rows in the target also differs from the number that the
remaining receipts count as delivered. An audit subtracts the accepted losses, so that it reports only later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.range_receipts import RangeReceipt, ReceiptsByRange, group_by_partition, merge_receipts
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict


@dataclass(frozen=True, slots=True)
class AcceptedSink:
    """Losses of a sink that a user has accepted, so that audits no longer report them.

    :param lost: sums of the receipts that the ledger knew and the sink no longer had, one sum for each contiguous range
    :param rows_missing: number of rows that the sink's receipts counted as delivered, minus the number of rows in the
        target; negative if the target had more rows, None if the rows were not counted
    """

    lost: tuple[RangeReceipt, ...] = ()
    rows_missing: int | None = 0

    def to_json(self) -> dict[str, Any]:
        """Return the losses as a JSON-ready dict, the form in which the ledger stores them.

        :meth:`from_json` is the inverse.
        """
        return {"lost": [_to_json(item) for item in self.lost], "rows_missing": self.rows_missing}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Restore the accepted losses from the output of :meth:`to_json`."""
        return cls(tuple(_from_json(item) for item in data["lost"]), data["rows_missing"])

    def covers(self, key: BatchKey, span: Range) -> bool:
        """Return whether the receipt of a batch is among the accepted losses, so that audits do not report it.

        :param key: the batch; generation and partition are compared with those of each loss
        :param span: the batch's range; it must overlap the range of a loss
        """
        partition = (key.generation, key.partition)
        return any((item.generation, item.partition) == partition and item.range.overlaps(span) for item in self.lost)

    def lost_part(self, item: RangeReceipt) -> RangeReceipt | None:
        """Return the sum of the lost receipts that overlap a range receipt; None if none overlaps it.

        An audit subtracts this sum from the range receipt before it compares the range receipt with the sink.

        :param item: a range receipt of the ledger
        :return: a range receipt over the range of ``item`` with the counts of the lost receipts only
        """
        parts = [
            part
            for part in self.lost
            if (part.generation, part.partition) == (item.generation, item.partition)
            and part.range.overlaps(item.range)
        ]
        if not parts:
            return None
        counts = sum((part.counts for part in parts), Counts())
        batches, rejected = sum(part.batches for part in parts), sum(part.rejected for part in parts)
        return replace(item, counts=counts, batches=batches, rejected=rejected, skipped=0, sent=0)

    def merged(self, passed: Iterable[RangeReceipt]) -> list[RangeReceipt]:
        """Return the ledger's range receipts; adjacent ones that overlap lost receipts are merged into one.

        An item of :attr:`lost` is the sum of lost receipts and may span several range receipts of the ledger. It cannot
        be divided among them, so only the sum of these range receipts can be compared with the sink.

        :param passed: the ledger's range receipts
        """
        touched: list[RangeReceipt] = []
        intact: list[RangeReceipt] = []
        for item in passed:
            (intact if self.lost_part(item) is None else touched).append(item)
        return intact + [item for items in group_by_partition(touched).values() for item in merge_receipts(items)]


def find_lost_receipts(
    passed: Iterable[RangeReceipt], batches: Iterable[Batch], receipts: Iterable[Receipt]
) -> tuple[RangeReceipt, ...]:
    """Return the sums of the receipts that the ledger knows and the sink does not have, one for each contiguous range.

    The ledger stores these sums as accepted losses when a user accepts the sink.

    :param passed: the ledger's range receipts
    :param batches: the ledger's batches beyond the checkpoints
    :param receipts: all receipts of this ledger and pipeline that the sink has
    """
    by_partition = {
        receipts_of_partition: ReceiptsByRange(items)
        for receipts_of_partition, items in group_by_partition(passed).items()
    }
    waited_for = {batch.key: batch for batch in batches if batch.receipt is not None}
    for receipt in receipts:
        receipts_of_partition = by_partition.get((receipt.key.generation, receipt.key.partition))
        if waited_for.pop(receipt.key, None) is None and receipts_of_partition is not None:
            receipts_of_partition.add(receipt)
    parts = [_lost_whole(batch) for batch in waited_for.values()]
    for sums in by_partition.values():
        parts += [part for item, found in sums.pairs() if (part := _lost_of(item, found)).batches > 0]
    return tuple(part for items in group_by_partition(parts).values() for part in merge_receipts(items))


def _lost_whole(batch: Batch) -> RangeReceipt:
    item = RangeReceipt.of(batch)
    return replace(item, batches=item.batches - item.skipped, skipped=0, at=None)


def _lost_of(item: RangeReceipt, receipts: Sequence[Receipt]) -> RangeReceipt:
    """Return the lost part of a range receipt: its counts minus the counts of the sink's receipts in its range.

    :param item: a range receipt of the ledger
    :param receipts: the receipts that the sink still has in the range of ``item``
    """
    counts = item.counts - sum((receipt.counts for receipt in receipts), Counts())
    has = sum(receipt.verdict is not Verdict.VOID for receipt in receipts)
    rejected = item.rejected - sum(receipt.verdict is Verdict.REJECTED for receipt in receipts)
    batches = item.batches - item.skipped - item.sent - has
    return replace(item, counts=counts, batches=batches, rejected=rejected, skipped=0, sent=0, at=None)


def _to_json(item: RangeReceipt) -> dict[str, Any]:
    return {
        "generation": item.generation,
        "partition": item.partition,
        "range": [item.range.start, item.range.end],
        "counts": item.counts.to_json(),
        "batches": item.batches,
        "rejected": item.rejected,
    }


def _from_json(data: Mapping[str, Any]) -> RangeReceipt:
    return RangeReceipt(
        data["generation"],
        data["partition"],
        Range(*data["range"]),
        Counts(**data["counts"]),
        data["batches"],
        data["rejected"],
    )
