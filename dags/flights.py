"""The demo: flights from JSON lines files into a Delta table, as tasks that a person can see.

Set FLIGHTS_FILES and FLIGHTS_TABLE for the scheduler's workers; ``make demo`` does it all.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

with DAG("flights", schedule=None, catchup=False, max_active_runs=1, tags=["ckpt"], doc_md=__doc__):
    CkptReplicationTaskGroup("replicate", pipeline="pipelines/flights.yaml")
