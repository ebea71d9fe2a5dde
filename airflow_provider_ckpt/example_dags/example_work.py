"""Run a pipeline when its lag has reached 10,000 positions, or when records have waited for 30 minutes."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_ckpt.assets.work import work_asset
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

# [START howto_ckpt_work_asset]
with DAG(
    "example_ckpt_work",
    schedule=work_asset(
        "example_customers",
        at_least=10_000,
        longest_wait=timedelta(minutes=30),
    ),
    max_active_runs=1,
    tags=["example"],
):
    CkptReplicateOperator(task_id="replicate", pipeline="pipelines/customers.yaml")
# [END howto_ckpt_work_asset]
