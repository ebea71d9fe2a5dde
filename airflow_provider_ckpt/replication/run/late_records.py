"""Find late records, which arrived after their range was read, by comparing positions in receipts with the source."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.record_positions import PositionDigest, RecordPositions
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range, merge
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.core.recovery import MissingReason, ReceiptedRange, UnreadRecords, not_covered

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.connectors.source_plan import FindUnreceipted
    from airflow_provider_ckpt.connectors.source_protocol import Source
    from airflow_provider_ckpt.core.receipt import Receipt
    from airflow_provider_ckpt.ledger.types import PartitionRecord
    from airflow_provider_ckpt.replication.setup import PipelineContext

_RangeKey = tuple[int, str, int, int]
"""Generation, partition, start and end of the range of a receipt."""


class Receipts:
    """Positions in a pipeline's receipts, to be compared with the records that the source contains now.

    The receipts are read from the sink at the first use and kept; the source is read for each comparison.

    :param source: the pipeline's source
    :param sink: the pipeline's sink
    :param partitions: the ledger's partitions; receipts below their low watermarks are not read
    """

    def __init__(self, source: Source, sink: Sink, partitions: Mapping[str, PartitionRecord]) -> None:
        self._source, self._sink, self._partitions = source, sink, partitions

    @cached_property
    def _positions(self) -> Mapping[_RangeKey, RecordPositions]:
        """Positions of the records that were read, for each range whose receipt in the sink contains them."""
        known = {
            name: KnownReceipts(record.partition.generation, record.low_watermark)
            for name, record in self._partitions.items()
        }
        return {
            _range_key(receipt): RecordPositions.parse(receipt.positions)
            for receipt in self._sink.receipts(known)
            if receipt.positions is not None
        }

    def unread_records(
        self, partition: str, receipted_ranges: Sequence[ReceiptedRange]
    ) -> Sequence[UnreadRecords | None] | None:
        """Return, for each range, the records that the source has now and that were never read.

        The entry of a range is None if all of its records were read. It is also None if part of the range is still to
        be read and the receipts do not contain every position, so that unread records cannot be told from these.

        This method is the argument ``compare`` of :func:`~airflow_provider_ckpt.core.recovery.find_missing`.

        :param partition: the partition's id
        :param receipted_ranges: ranges that were read, with their receipts
        :return: None in place of the whole list, if no records appear late in this source
        """
        digests = self._source.digests(partition, [receipted.receipt.range for receipted in receipted_ranges])
        if digests is None:
            return None
        return [
            _unread_positions(self._source, partition, *item, self._positions)
            for item in zip(receipted_ranges, digests, strict=True)
        ]

    def is_exact(self, receipted: ReceiptedRange) -> bool:
        """Return whether the receipts of a range contain enough positions to find each unread record.

        Otherwise only the number of records can be compared.

        :param receipted: the range with its receipts
        """
        read = [
            self._positions.get(_range_key(item)) for item in (receipted.receipt, *receipted.again) if item.counts.read
        ]
        if any(item is None for item in read):
            return False
        return not receipted.pending or all(item is not None and item.packed is not None for item in read)


def unread_finder(
    setup: PipelineContext, source: Source, sink: Sink, partitions: Mapping[str, PartitionRecord]
) -> FindUnreceipted:
    """Return a function that finds records which were never read although they lie below the end of the plan.

    The function takes the id of a partition and ranges in ascending order. It returns the ranges in which the source
    has such records, or None if the receipts do not show that. Only receipts that overlap the given ranges are
    compared. Batches that are planned and have not begun count as read.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param source: the pipeline's source, open
    :param sink: the pipeline's sink, open
    :param partitions: the ledger's partitions
    """
    window = setup.pipeline.recovery.window

    def unread(partition: str, ranges: Sequence[Range]) -> Sequence[Range] | None:
        receipts = Receipts(source, sink, partitions)
        batches = partitions[partition].partition.batches.values()
        covered = [batch.range for batch in batches if batch.state is BatchState.PLANNED and not batch.attempts]
        exact = True

        def shown(name: str, receipted_ranges: Sequence[ReceiptedRange]) -> Sequence[UnreadRecords | None] | None:
            nonlocal exact
            if name != partition:
                return None
            concerned = [_overlaps(receipted.receipt.range, ranges) for receipted in receipted_ranges]
            near = list(compress(receipted_ranges, concerned))
            surpluses = receipts.unread_records(name, near)
            exact = surpluses is not None and all(receipts.is_exact(receipted) for receipted in near)
            covered.extend(receipted.receipt.range for receipted in near)
            found = iter(surpluses or ())
            return [next(found, None) if asked else None for asked in concerned]

        found = setup.ledger.recovery_plan(setup.pipeline.name, settle_lag=timedelta(0), window=window, compare=shown)
        late = [item for item in found if item.partition == partition and item.reason is not MissingReason.UNRECEIPTED]
        if not exact or not_covered(ranges, covered) or not all(item.readable_alone for item in late):
            return None
        return [span for item in late for span in item.ranges]

    return unread


def _overlaps(span: Range, ranges: Sequence[Range]) -> bool:
    """Return whether a range overlaps at least one of the given ranges, which are in ascending order.

    :param span: the range
    :param ranges: the ranges to compare it with
    """
    at = bisect_right(ranges, span.start, key=lambda item: item.end)
    return at < len(ranges) and ranges[at].overlaps(span)


def _unread_positions(
    source: Source,
    partition: str,
    receipted: ReceiptedRange,
    now: PositionDigest,
    positions: Mapping[_RangeKey, RecordPositions],
) -> UnreadRecords | None:
    """Return the records that the source contains in a range and that were never read; None if all of them were read.

    None is also returned if part of the range is still to be read and the receipts do not contain every position.

    :param source: the pipeline's source
    :param partition: the partition's id
    :param receipted: the range with its receipts
    :param now: number and digest of the positions that the source contains in the range now
    :param positions: positions in each receipt that has any
    """
    more = now.count - receipted.records
    receipts = [receipted.receipt, *receipted.again]
    read = [(item.range, positions[_range_key(item)]) for item in receipts if _range_key(item) in positions]
    only_added = receipted.added == receipted.again
    if len(read) < sum(item.counts.read > 0 for item in receipts):  # a receipt without positions: compare counts
        return UnreadRecords(now.count, more if only_added else 0) if more > 0 and not receipted.pending else None
    if only_added and now.same(PositionDigest.total(item.digest for _, item in read)):
        return None
    if all(item.packed is not None for _, item in read):
        span = receipted.receipt.range
        found = find_unread_positions(read, source.positions(partition, span), span, receipted.pending)
        return found if found.late else None
    return None if receipted.pending else UnreadRecords(now.count, max(more, 0) if only_added else 0)


def find_unread_positions(
    read: Iterable[tuple[Range, RecordPositions]], shown: Sequence[int], within: Range, pending: Sequence[Range] = ()
) -> UnreadRecords:
    """Return the records that a range contains now and that were not read, because they appeared afterwards.

    If some records at a position were read and the position has more records now, reading it again would deliver
    records twice. Such positions are in ``shared`` of the result, and not in its ``ranges``.

    :param read: ranges that were read, oldest first, each with the positions of its records; where two ranges overlap,
        the later one counts
    :param shown: position of every record that the range contains now, in order
    :param within: the range to compare
    :param pending: ranges that are still to be read; their positions are ignored
    """
    before: Counter[int] = Counter()
    for span, positions in read:
        read_positions = positions.all()
        assert read_positions is not None
        for position in [known for known in before if span.start <= known < span.end]:
            del before[position]
        before.update(position for position in read_positions.tolist() if within.start <= position < within.end)
    now = Counter(position for position in shown if not any(span.start <= position < span.end for span in pending))
    late = {position: count - before[position] for position, count in now.items() if count > before[position]}
    fresh = [position for position in late if position not in before]
    barriers = sorted({*before, *(span.start for span in pending)})
    return UnreadRecords(
        len(shown),
        sum(late.values()),
        ranges=tuple(_ranges_between(sorted(fresh), barriers)),
        shared=tuple(sorted(position for position in late if position in before)),
    )


def _ranges_between(fresh: Sequence[int], read: Sequence[int]) -> Iterator[Range]:
    """Yield the fewest ranges that contain all unread positions and no position that was read.

    :param fresh: unread positions, sorted
    :param read: positions that were read, sorted
    """
    groups: list[Range] = []
    for position in fresh:
        if groups and bisect_left(read, groups[-1].end) == bisect_left(read, position):
            groups[-1] = Range(groups[-1].start, position + 1)
        else:
            groups.append(Range(position, position + 1))
    yield from merge(groups)


def _range_key(receipt: Receipt | RangeReceipt) -> _RangeKey:
    """Return generation, partition, start and end of a receipt's range."""
    if isinstance(receipt, RangeReceipt):
        return receipt.generation, receipt.partition, receipt.range.start, receipt.range.end
    return receipt.key.generation, receipt.key.partition, receipt.range.start, receipt.range.end
