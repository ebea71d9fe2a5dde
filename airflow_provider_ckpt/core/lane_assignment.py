"""Assign the batches of a wave to lanes, and keep the order of each partition's batches (semantics, section 6).

A wave is one Spark job; a lane is one of its Spark tasks, which sends a list of batches in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.wave_messages import BatchTask


def distribute(tasks: Iterable[BatchTask], lanes: int, *, pinned: bool) -> list[list[BatchTask]]:
    """Distribute the batches of a wave over lanes, and return the batches of each lane in order; no lane is empty.

    :param tasks: the batches
    :param lanes: maximum number of lanes
    :param pinned: whether all batches of a partition go to one lane, in seq order; otherwise they are dealt to the
        lanes in turn, regardless of their partition
    """
    ordered = sorted(tasks, key=lambda task: (task.key.partition, task.key.generation, task.key.seq))
    packed: list[list[BatchTask]] = [[] for _ in range(max(min(lanes, len(ordered)), 1))]
    if pinned:
        groups: dict[str, list[BatchTask]] = {}
        for task in ordered:
            groups.setdefault(task.key.partition, []).append(task)
        for group in sorted(groups.values(), key=len, reverse=True):
            min(packed, key=len).extend(group)
    else:
        for index, task in enumerate(ordered):
            packed[index % len(packed)].append(task)
    return [lane for lane in packed if lane]


def first_of_each_partition(due: Sequence[Batch], *, pinned: bool) -> list[Batch]:
    """Return the first batch of each partition if the pipeline is pinned, else all batches.

    A wave that may contain only one batch of each partition consists of these, so that the partition's order is kept.

    :param due: batches that may start now, in order
    :param pinned: whether the pipeline is pinned: a partition's batches take effect in order
    """
    if not pinned:
        return list(due)
    first: dict[str, Batch] = {}
    for batch in due:
        first.setdefault(batch.key.partition, batch)
    return list(first.values())


def without_blocked(due: Sequence[Batch], candidates: Sequence[Batch]) -> list[Batch]:
    """Return the due batches without those that would overtake an earlier batch of their partition.

    A batch is left out if a batch of its partition with a lower seq is not due yet. This preserves the order of a
    pinned pipeline (semantics, section 6).

    :param due: the batches whose next attempt may start now
    :param candidates: all batches that wait for an attempt, due or not, in order of seq
    """
    ready = {batch.key for batch in due}
    waiting: dict[str, int] = {}
    for batch in candidates:
        if batch.key not in ready:
            waiting.setdefault(batch.key.partition, batch.key.seq)
    return [batch for batch in due if batch.key.seq < waiting.get(batch.key.partition, batch.key.seq + 1)]
