"""What the ledger says of a pipeline's receipts and dead letters, to be held against the sink."""

from __future__ import annotations

from collections import Counter

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.agreement import Recorded
from airflow_provider_ckpt.core.letters import AttemptKey
from airflow_provider_ckpt.ledger import letters, reads, sinks
from airflow_provider_ckpt.ledger import receipts as ranges


def load(connection: Connection, pipeline: str) -> Recorded:
    """All of it, in one snapshot.

    :raises ConfigError: if the ledger does not know the pipeline
    """
    reads.known(connection, pipeline)
    stored = reads.partitions(connection, pipeline).values()
    named: Counter[AttemptKey] = Counter()
    for entry in letters.load(connection, pipeline):
        named[entry.letters.source] += entry.letters.records
    return Recorded(
        ranges.load(connection, pipeline),
        {
            batch.key: batch
            for item in stored
            for batch in [*item.partition.batches.values(), *item.unconfirmed.values()]
        },
        {item.partition.id: item.partition.generation for item in stored},
        named,
        busy=reads.leased(connection, pipeline),
        accepted=sinks.accepted(connection, pipeline),
    )
