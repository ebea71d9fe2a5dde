"""Compute the low watermark of a partition: the checkpoint one ``recovery.window`` ago (semantics, section 5).

The action ``recover`` compares no positions below the low watermark with the source. If the low watermark must pass a
range whose batch has no verdict yet, this is recorded as an event, and the range continues to block the checkpoint.
"""

from __future__ import annotations

from airflow_provider_ckpt.core.batch import RESOLVED, BatchState
from airflow_provider_ckpt.core.partition_history import PartitionSnapshot
from airflow_provider_ckpt.core.partition_view import PartitionView
from airflow_provider_ckpt.core.ranges import Range, subtract
from airflow_provider_ckpt.core.tickets import Event

EXPIRED = "expired_unreceipted"
"""Kind of the event for a range without a receipt that recovery can no longer compare with the source.

The low watermark has passed the range, or the source's retention has deleted its records.
"""


def low_watermark(low: int, committed: int, earlier: PartitionSnapshot | None) -> int:
    """Return the new low watermark: the position of the checkpoint one recovery window ago.

    If batches that were already planned at that time still block the checkpoint, the low watermark passes them as well,
    because recovery compares only positions that were planned within the window; :func:`expiry_events` reports such
    batches. The low watermark never moves back.

    :param low: the low watermark so far
    :param committed: the checkpoint
    :param earlier: snapshot of the partition one recovery window ago, in this generation; None if there is none, and
        the low watermark stays where it is
    """
    if earlier is None:
        return low
    return max(low, earlier.planned_end if earlier.planned_end > committed else earlier.committed)


def expiry_events(partition: PartitionView, low: int, end: int) -> list[Event]:
    """Return an event for each unresolved range that the low watermark passes.

    These ranges continue to block the checkpoint, so no record is skipped, but recovery no longer compares them with
    the source.

    :param partition: the partition
    :param low: the low watermark so far
    :param end: the new low watermark
    """
    start = max(low, partition.committed)
    if end <= start:
        return []
    resolved = [batch.range for batch in partition.batches.values() if batch.state in RESOLVED]
    owners = [batch for batch in partition.batches.values() if batch.state not in (*RESOLVED, BatchState.SUPERSEDED)]
    events = []
    for gap in subtract(Range(start, end), resolved):
        covered = [
            (Range(max(batch.range.start, gap.start), min(batch.range.end, gap.end)), batch.key.seq)
            for batch in owners
            if batch.range.overlaps(gap)
        ]
        free = [(span, None) for span in subtract(gap, (span for span, _ in covered))]
        for span, seq in sorted([*covered, *free], key=lambda item: item[0]):
            detail = {"range": [span.start, span.end]}
            events.append(Event(EXPIRED, partition.id, partition.generation, seq, detail))
    return events
