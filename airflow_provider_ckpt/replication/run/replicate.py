"""Execute a whole run in one call, for ``CkptReplicateOperator`` and ``airflow ckpt run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.replication.run.acquire import acquire

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.run.engine_protocol import Engine
    from airflow_provider_ckpt.replication.run.summary import RunSummary
    from airflow_provider_ckpt.replication.setup import PipelineContext


def replicate(setup: PipelineContext, engine: Engine) -> RunSummary:
    """Execute a whole run: acquire the lease, plan, execute all rounds, settle, and release the lease.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param engine: Spark, which is started only if there are batches to send
    :returns: the run's summary
    :raises CkptError: when the run halts or fails; what was delivered is settled, and the lease is released
    """
    with acquire(setup) as run:
        if run.prepare():
            run.execute(engine, rounds=True)
        else:
            run.planning.raise_refused()
        return run.finish()
