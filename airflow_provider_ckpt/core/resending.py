"""Finds what has to be sent again to a sink that has lost receipts: all of that, and nothing that it still holds.

Where all that follows a position is lost, the partition is rewound there, which keeps the order of its records. Else
the lost stretches are read once more beside the stream. A sink that replaces rows by key is always rewound, since an
older version of a row must not come after a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range, merge, subtract

Places = Mapping[tuple[int, str], Sequence[Range]]
"""Ranges by generation and partition."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Positions, ranges and replays to send again to a sink that has lost receipts.

    :param positions: partitions to rewind, each with the first position to read again
    :param spans: source partitions, each with a range to read again
    :param replayed: side partitions of dead letters, each with positions whose replay is lost
    """

    positions: Mapping[str, int] = field(default_factory=dict)
    spans: tuple[tuple[str, Range], ...] = ()
    replayed: tuple[tuple[str, Range], ...] = ()


def find_lost(
    partitions: Iterable[Partition], held: Places, *, first: Mapping[str, int], skipped: Places, by_key: bool
) -> Resend:
    """Find what the ledger takes for delivered although the sink holds no receipt for it.

    :param partitions: the ledger's partitions
    :param held: ranges of the receipts that the sink holds
    :param first: the lowest position at which any generation of a partition began, by partition
    :param skipped: ranges that a person gave up; they stay given up, except under a rewind by key
    :param by_key: whether the sink replaces rows by key
    """
    known = {partition.id: partition for partition in partitions}
    positions: dict[str, int] = {}
    spans: list[tuple[str, Range]] = []
    replayed: list[tuple[str, Range]] = []
    for name, partition in known.items():
        if partition.limit is None:
            lost = _lost(partition, held, first.get(name, partition.base), skipped)
            if lost and (by_key or _is_tail(partition, lost, held, skipped)):
                positions[name] = min(lost[0].start, partition.committed)
            else:
                spans += [(name, span) for span in lost]
    for name, partition in known.items():
        if partition.limit is not None:
            key = BatchKey(partition.generation, name, 0)
            again = [span for source, span in spans if source == key.source]
            covered = [*held.get((partition.generation, name), ()), *skipped.get((partition.generation, name), ())]
            if key.letters:
                replayed += [(name, span) for span in _without(_resolved(partition), covered)]
                continue
            for span in _without(_resolved(partition), [*covered, *again]):
                if by_key:
                    positions[key.source] = min(span.start, positions.get(key.source, span.start))
                elif span.start < positions.get(key.source, span.end):
                    spans.append((key.source, span))
    return Resend(positions, tuple(spans), tuple(replayed))


def _lost(partition: Partition, held: Places, first: int, skipped: Places) -> list[Range]:
    """Positions of a source partition without a receipt: of this generation, and before its base of any."""
    now = [*_of(partition, held, since=partition.generation), *_of(partition, skipped, since=partition.generation)]
    lost = _without(_resolved(partition), now)
    if first < partition.base:
        lost += _without([Range(first, partition.base)], [*_of(partition, held), *_of(partition, skipped)])
    return merge(lost)


def _is_tail(partition: Partition, lost: Sequence[Range], held: Places, skipped: Places) -> bool:
    """Whether all that follows the first lost position is lost, up to the checkpoint and beyond it."""
    start = min(lost[0].start, partition.committed)
    now = [*_of(partition, held, since=partition.generation), *_of(partition, skipped, since=partition.generation)]
    passed = [Range(start, partition.committed)] if start < partition.committed else []
    return all(span.end <= start for span in now) and not _without(passed, lost)


def _of(partition: Partition, places: Places, *, since: int = 0) -> list[Range]:
    """The ranges of a source partition and of the side partitions that read it once more, from a generation on."""
    found: list[Range] = []
    for (generation, name), ranges in places.items():
        key = BatchKey(generation, name, 0)
        if generation >= since and key.source == partition.id and not key.letters:
            found += ranges
    return found


def _resolved(partition: Partition) -> list[Range]:
    """Return the ranges that the ledger takes for done.

    These are everything up to the checkpoint, and beyond it the batches that wait for an earlier one.
    """
    passed = [Range(partition.base, partition.committed)] if partition.base < partition.committed else []
    ahead = [batch.range for batch in partition.pending_acks.values() if batch.receipt is not None]
    return merge([*passed, *ahead])


def _without(whole: Iterable[Range], covered: Sequence[Range]) -> list[Range]:
    return [gap for span in whole for gap in subtract(span, covered)]
