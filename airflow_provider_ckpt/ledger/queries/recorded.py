"""The ledger's view of a pipeline's receipts and dead letters, for comparison with the sink."""

from __future__ import annotations

from collections import Counter

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.sink_comparison import LedgerSnapshot
from airflow_provider_ckpt.ledger.queries import range_receipts as ranges
from airflow_provider_ckpt.ledger.queries import sink_state, status
from airflow_provider_ckpt.ledger.store import dead_letters


def load(connection: Connection, pipeline: str) -> LedgerSnapshot:
    """Return receipts, batches, generations and numbers of dead letters.

    :raises ConfigError: if the ledger does not know the pipeline
    """
    status.require_pipeline(connection, pipeline)
    stored = status.partitions(connection, pipeline).values()
    named: Counter[AttemptKey] = Counter()
    for entry in dead_letters.load(connection, pipeline):
        named[entry.dead_letters.source] += entry.dead_letters.records
    return LedgerSnapshot(
        ranges.load(connection, pipeline),
        {
            batch.key: batch
            for item in stored
            for batch in [*item.partition.batches.values(), *item.unconfirmed.values()]
        },
        {item.partition.id: item.partition.generation for item in stored},
        named,
        busy=status.is_leased(connection, pipeline),
        accepted=sink_state.accepted(connection, pipeline),
    )
