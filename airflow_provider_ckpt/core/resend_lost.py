"""Find the ranges that must be sent again to a sink that has lost receipts: all for which the sink has no receipt.

If everything after a position is lost, the partition is rewound to that position, which preserves the order of its
records. Otherwise side partitions read the lost ranges again. A sink that replaces rows by key is always rewound,
because an older version of a row must not overwrite a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range, merge, subtract

RangesByPartition = Mapping[tuple[int, str], Sequence[Range]]
"""Mapping from a pair of generation and partition id to ranges of that partition."""


@dataclass(frozen=True, slots=True)
class ResendPlan:
    """Positions, ranges and replays to send again to a sink that has lost receipts.

    :param positions: source partitions to rewind, each with the first position to read again
    :param ranges: pairs of a source partition and a range of it that a side partition reads again
    :param replayed: pairs of a side partition that replays dead letters and a range of its positions that the sink has
        lost
    """

    positions: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[tuple[str, Range], ...] = ()
    replayed: tuple[tuple[str, Range], ...] = ()


def find_lost(
    partitions: Iterable[Partition],
    receipted: RangesByPartition,
    *,
    first: Mapping[str, int],
    skipped: RangesByPartition,
    by_key: bool,
) -> ResendPlan:
    """Find the ranges that are resolved in the ledger although the sink has no receipt for them.

    :param partitions: the ledger's partitions
    :param receipted: ranges of the receipts that the sink has
    :param first: by partition, the lowest position at which any of its generations began
    :param skipped: ranges that a user skipped; they remain skipped, unless ``by_key`` is set and their partition is
        rewound to a position before them
    :param by_key: whether the sink replaces rows by key
    :return: the positions, ranges and replays to send again
    """
    known = {partition.id: partition for partition in partitions}
    positions: dict[str, int] = {}
    ranges: list[tuple[str, Range]] = []
    replayed: list[tuple[str, Range]] = []
    for name, partition in known.items():
        if partition.limit is None:
            lost = _lost(partition, receipted, first.get(name, partition.base), skipped)
            if lost and (by_key or _is_tail(partition, lost, receipted, skipped)):
                positions[name] = min(lost[0].start, partition.committed)
            else:
                ranges += [(name, span) for span in lost]
    for name, partition in known.items():
        if partition.limit is not None:
            key = BatchKey(partition.generation, name, 0)
            lost_ranges = [span for source, span in ranges if source == key.source]
            covered = [*receipted.get((partition.generation, name), ()), *skipped.get((partition.generation, name), ())]
            if key.is_replay:
                replayed += [(name, span) for span in _uncovered(_resolved(partition), covered)]
                continue
            for span in _uncovered(_resolved(partition), [*covered, *lost_ranges]):
                if by_key:
                    positions[key.source] = min(span.start, positions.get(key.source, span.start))
                elif span.start < positions.get(key.source, span.end):
                    ranges.append((key.source, span))
    return ResendPlan(positions, tuple(ranges), tuple(replayed))


def _lost(partition: Partition, receipted: RangesByPartition, first: int, skipped: RangesByPartition) -> list[Range]:
    """Return the resolved ranges of a source partition for which the sink has no receipt.

    From the base of the current generation on, only receipts of this generation count; before the base, those of any
    generation.

    :param partition: the source partition
    :param receipted: ranges of the receipts that the sink has
    :param first: the lowest position at which any generation of the partition began
    :param skipped: ranges that a user skipped, which are not lost
    """
    now = [
        *_ranges_of_source(partition, receipted, since=partition.generation),
        *_ranges_of_source(partition, skipped, since=partition.generation),
    ]
    lost = _uncovered(_resolved(partition), now)
    if first < partition.base:
        lost += _uncovered(
            [Range(first, partition.base)],
            [*_ranges_of_source(partition, receipted), *_ranges_of_source(partition, skipped)],
        )
    return merge(lost)


def _is_tail(
    partition: Partition, lost: Sequence[Range], receipted: RangesByPartition, skipped: RangesByPartition
) -> bool:
    """Return whether the sink has lost everything after the first lost position, so a rewind delivers no record twice.

    :param partition: the source partition
    :param lost: its lost ranges, in order
    :param receipted: ranges of the receipts that the sink has
    :param skipped: ranges that a user skipped
    """
    start = min(lost[0].start, partition.committed)
    now = [
        *_ranges_of_source(partition, receipted, since=partition.generation),
        *_ranges_of_source(partition, skipped, since=partition.generation),
    ]
    passed = [Range(start, partition.committed)] if start < partition.committed else []
    return all(span.end <= start for span in now) and not _uncovered(passed, lost)


def _ranges_of_source(partition: Partition, ranges_by_partition: RangesByPartition, *, since: int = 0) -> list[Range]:
    """Return all given ranges that lie in one source partition, in arbitrary order.

    Ranges of the partition itself are returned, and those of side partitions that read parts of it again. Replays of
    dead letters are left out, because their positions number dead letters.

    :param partition: the source partition
    :param ranges_by_partition: ranges by generation and partition
    :param since: ranges of older generations than this one are left out
    """
    found: list[Range] = []
    for (generation, name), ranges in ranges_by_partition.items():
        key = BatchKey(generation, name, 0)
        if generation >= since and key.source == partition.id and not key.is_replay:
            found += ranges
    return found


def _resolved(partition: Partition) -> list[Range]:
    """Return the resolved ranges of a partition: up to the checkpoint, and the batches beyond it with a receipt."""
    passed = [Range(partition.base, partition.committed)] if partition.base < partition.committed else []
    beyond_checkpoint = [batch.range for batch in partition.pending_acks.values() if batch.receipt is not None]
    return merge([*passed, *beyond_checkpoint])


def _uncovered(whole: Iterable[Range], covered: Sequence[Range]) -> list[Range]:
    return [gap for span in whole for gap in subtract(span, covered)]
