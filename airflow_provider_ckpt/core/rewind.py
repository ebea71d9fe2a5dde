"""Rewind a partition: start a new generation at an earlier position (semantics, section 2)."""

from __future__ import annotations

from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.core.tickets import Event


def rewind(partition: Partition, position: int, *, generation: int, reason: str) -> list[Event]:
    """Start a new generation of a partition at an earlier position; unresolved batches are superseded.

    Batches that were resolved beyond the checkpoint keep their verdicts, and are added to the partition's list
    ``passed``, whose receipts the ledger merges. The new generation reads their ranges again.

    :param partition: the partition, which is changed
    :param position: the first position to read again, at most ``committed``
    :param generation: the new generation, greater than the partition's
    :param reason: the reason, stored in the event
    :return: the events for the audit log
    :raises LedgerStateError: if the position is after the checkpoint, because records would be skipped, or the
        generation is not a new one
    """
    if position > partition.committed or generation <= partition.generation:
        raise LedgerStateError(
            f"the checkpoint of partition {partition.id!r} is {position_text(partition.committed)} in generation "
            f"{partition.generation}; it cannot be rewound to {position} in generation {generation}.",
            position=position,
            hint="Give a position at or before the checkpoint; to skip records after it, skip their batches.",
        )
    events: list[Event] = []
    for seq in partition.blocking:
        events += partition.supersede(seq)
    before = {"generation": partition.generation, "committed": partition.committed}
    partition.passed += partition.pending_acks.values()
    partition.batches = {}
    partition.generation, partition.next_seq = generation, 0
    partition.base = partition.committed = partition.planned_end = position
    detail = {"before": before, "after": {"generation": generation, "committed": position}, "reason": reason}
    return [*events, Event("rewound", partition.id, generation, None, detail)]
