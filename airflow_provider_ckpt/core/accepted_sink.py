"""State of a sink when a user accepted it: the receipts and rows that it had lost by then.

What the sink has lost is sent again under new receipts, or given up. Either way the lost receipts remain missing, and
the target holds other rows than the remaining receipts count. An audit takes this into account, so that it reports only
what is lost later.
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
    """Losses that an audit does not report any more.

    :param lost: sums of the receipts that the ledger had and the sink did not
    :param rows_missing: how many rows fewer the target held than the sink's receipts had delivered, negative for more;
        None if the sink could not count them
    """

    lost: tuple[RangeReceipt, ...] = ()
    rows_missing: int | None = 0

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {"lost": [_to_json(item) for item in self.lost], "rows_missing": self.rows_missing}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The state that :meth:`to_json` wrote."""
        return cls(tuple(_from_json(item) for item in data["lost"]), data["rows_missing"])

    def covers(self, key: BatchKey, span: Range) -> bool:
        """Return whether the receipt of a batch was among those that were lost.

        :param span: the batch's range
        """
        partition = (key.generation, key.partition)
        return any((item.generation, item.partition) == partition and item.range.overlaps(span) for item in self.lost)

    def lost_part(self, item: RangeReceipt) -> RangeReceipt | None:
        """Return the sum of what was lost of a range receipt; None if nothing was lost."""
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
        """Return the ledger's range receipts, and merge those of which something was lost.

        A lost range is stored as one sum for all range receipts that it touches together.
        """
        touched: list[RangeReceipt] = []
        intact: list[RangeReceipt] = []
        for item in passed:
            (intact if self.lost_part(item) is None else touched).append(item)
        return intact + [item for items in group_by_partition(touched).values() for item in merge_receipts(items)]


def find_lost_receipts(
    passed: Iterable[RangeReceipt], batches: Iterable[Batch], receipts: Iterable[Receipt]
) -> tuple[RangeReceipt, ...]:
    """Sum up the receipts that the ledger has and the sink does not.

    :param passed: the ledger's range receipts
    :param batches: the ledger's batches beyond the checkpoints
    :param receipts: all that the sink holds of this ledger and pipeline
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
    """Return the counts of a range receipt beyond the receipts that are there."""
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
