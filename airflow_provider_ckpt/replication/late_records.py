"""Which records of a source came after their range was read: the positions that receipts keep, and those shown now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.positions import Digest, Positions, surplus
from airflow_provider_ckpt.core.receipts import Known, RangeReceipt
from airflow_provider_ckpt.core.recovery import Reading, Shown, Surplus

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.batch import Receipt
    from airflow_provider_ckpt.ledger.records import PartitionRecord
    from airflow_provider_ckpt.replication.setup import Opened

_Place = tuple[int, str, int, int]


def shown_by(opened: Opened, partitions: Mapping[str, PartitionRecord]) -> Shown:
    """Return the function by which :func:`~airflow_provider_ckpt.core.recovery.missing` asks source and sink.

    It asks each of them only once it is needed.

    :param opened: the pipeline's source and sink
    :param partitions: the ledger's partitions; receipts below their low watermarks are not read
    """
    kept: dict[_Place, Positions] | None = None

    def shown(partition: str, readings: Sequence[Reading]) -> Sequence[Surplus | None] | None:
        nonlocal kept
        digests = opened.source.digests(partition, [reading.receipt.range for reading in readings])
        if digests is None:
            return None
        if kept is None:
            known = {name: Known(record.partition.generation, record.low) for name, record in partitions.items()}
            kept = {
                _place(receipt): Positions.parse(receipt.positions)
                for receipt in opened.sink.receipts(known)
                if receipt.positions is not None
            }
        return [_surplus(opened, partition, *item, kept) for item in zip(readings, digests, strict=True)]

    return shown


def _surplus(
    opened: Opened, partition: str, reading: Reading, now: Digest, kept: Mapping[_Place, Positions]
) -> Surplus | None:
    """Return the records that the range of a reading shows and that were not read, or None if there are none."""
    more = now.count - reading.records
    receipts = [reading.receipt, *reading.again]
    read = [(item.range, kept[_place(item)]) for item in receipts if _place(item) in kept]
    only_added = reading.added == reading.again
    if len(read) < sum(item.counts.read > 0 for item in receipts):  # a sink that kept none: counts have to do
        return Surplus(now.count, more if only_added else 0) if more > 0 and not reading.pending else None
    if only_added and now.same(Digest.total(item.digest for _, item in read)):
        return None
    if all(item.packed is not None for _, item in read):
        span = reading.receipt.range
        found = surplus(read, opened.source.positions(partition, span), span, reading.pending)
        return found if found.late else None
    return None if reading.pending else Surplus(now.count, max(more, 0) if only_added else 0)


def _place(receipt: Receipt | RangeReceipt) -> _Place:
    if isinstance(receipt, RangeReceipt):
        return receipt.generation, receipt.partition, receipt.range.start, receipt.range.end
    return receipt.key.generation, receipt.key.partition, receipt.range.start, receipt.range.end
