"""Move the low watermarks of partitions after their checkpoints; ``core/low_watermark.py`` decides how far."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.low_watermark import expiry_events, low_watermark
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.store import partition_history, partitions


def move_low_watermarks(
    connection: Connection,
    pipeline: str,
    items: Sequence[partitions.LoadedPartition],
    window: timedelta | None,
    now: datetime,
    *,
    idle: bool = False,
) -> list[Event]:
    """Move the low watermark of partitions to the checkpoint, or to where the checkpoint was one recovery window ago.

    With a window, finding that position takes a query of the partitions' history. The low watermark therefore moves
    only when a new snapshot of the history is due, about once a minute, unless ``idle`` is set.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param items: partitions of the pipeline; the attribute ``low_watermark`` of each is updated
    :param window: the recovery window; if None or zero, the low watermark moves to the checkpoint
    :param now: time of the command
    :param idle: whether to move the low watermarks even if no snapshot of the partition's history is due
    :return: an event for each range without a receipt that the low watermark had to pass
    """
    continuing = [item for item in items if item.snapshot is not None and not item.rewound]
    if not window:
        for item in continuing:
            item.low_watermark = max(item.low_watermark, item.partition.committed)
        return []
    due = [
        item
        for item in continuing
        if idle or (item.moved_at and partition_history.is_snapshot_due(item.moved_at, item.marked_at, now))
    ]
    snapshots = partition_history.snapshots_at(
        connection, pipeline, now - window, {item.partition.id: item.before_row for item in due}
    )
    events: list[Event] = []
    for item in due:
        part, was = item.partition, snapshots.get(item.partition.id)
        position = low_watermark(
            item.low_watermark, part.committed, was if was is not None and was.generation == part.generation else None
        )
        if position > part.committed:
            partitions.load_all_batches(connection, pipeline, item)
        events += expiry_events(part, item.low_watermark, position)
        item.low_watermark = position
    return events
