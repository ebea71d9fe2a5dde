"""The history of generations: where each began, why, and how far it had come when a rewind ended it."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.store import bulk_sql, partitions, tables
from airflow_provider_ckpt.ledger.unit_of_work import Work


def note(work: Work, events: Sequence[Event], why: str | None = None) -> None:
    """Keep the history, and take side partitions that were started among those that are stored."""
    for event in events:
        partition = work.machine.partitions.get(event.partition)
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
            work.item(partition.id).state = {}  # what the source noted was of the positions that are read again now
        elif event.kind == "side_partition_started" and partition is not None:
            origin = work.item(event.detail["source"])
            work.stored[partition.id] = partitions.Stored(
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
            "reason": why or event.detail.get("reason") or event.kind,
        }
        bulk_sql.insert(work.connection, tables.generation, [row])
