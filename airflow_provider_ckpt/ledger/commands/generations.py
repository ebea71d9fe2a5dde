"""Store the history of generations: the start and reason of each, and the checkpoint at which a rewind ended it."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.store import bulk_sql, partitions, tables
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork


def record_generations(work: UnitOfWork, events: Sequence[Event], reason: str | None = None) -> None:
    """Store the starts and ends of generations that some events report, and add side partitions that were started.

    A rewind also clears the state that the source stored at its last planning of the partition.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction; new side partitions
        are added to it
    :param events: events of a command; only rewinds and starts of side partitions are considered
    :param reason: reason to store; None for the reason in the event
    """
    for event in events:
        partition = work.pipeline_state.partitions.get(event.partition)
        if event.kind == "rewound" and partition is not None:
            before = event.detail["before"]
            c = tables.generation.c
            work.connection.execute(
                tables.generation.update()
                .where(
                    c.pipeline == work.lease.pipeline,
                    c.partition == partition.id,
                    c.generation == before["generation"],
                )
                .values(committed=before["committed"], ended_at=work.now)
            )
            work.item(partition.id).state = {}  # the source's values describe positions that will be read again
        elif event.kind == "side_partition_started" and partition is not None:
            origin = work.item(event.detail["source"])
            work.stored[partition.id] = partitions.LoadedPartition(
                partition, origin.identity, None, event.detail.get("state", {})
            )
        else:
            continue
        row = {
            "pipeline": work.lease.pipeline,
            "generation": partition.generation,
            "partition": partition.id,
            "base": partition.base,
            "started_at": work.now,
            "reason": reason or event.detail.get("reason") or event.kind,
        }
        bulk_sql.insert(work.connection, tables.generation, [row])
