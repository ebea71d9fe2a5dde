"""Attach to the lease of an earlier task of the DAG run, or reacquire it if this task was started before.

In a task group, the first task acquires the lease, and the other tasks carry its epoch (semantics, section 4).
"""

from __future__ import annotations

from airflow_provider_ckpt.core.errors import StaleEpochError
from airflow_provider_ckpt.replication.metric_names import Metric
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.run import Run
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext


def attach_or_reacquire(setup: PipelineContext, epoch: int) -> Run:
    """Continue a run under the lease that an earlier task of the same DAG run acquired.

    If attempts of that epoch are still open, this task was started before: its earlier process has died, or still runs.
    Then the lease is acquired again under a new epoch, :attr:`Run.epoch`, which fences an earlier process.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param epoch: epoch of the earlier task's lease
    :raises StaleEpochError: if another run has taken over since
    """
    try:
        lease = setup.ledger.attach(setup.pipeline.name, epoch, setup.owner)
    except StaleEpochError:
        setup.meter.count(Metric.FENCE_REJECTIONS)
        raise
    partitions = setup.ledger.partitions(setup.pipeline.name).values()
    if any(batch.epoch == epoch for record in partitions for batch in record.partition.in_flight.values()):
        return acquire(setup)
    run = Run(setup, lease, OpenConnectors(setup))
    run.record_checkpoints(run.ledger.partitions(run.pipeline.name))
    return run
