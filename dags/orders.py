"""Orders from one PostgreSQL into another every ten minutes, the whole run in one task."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

with DAG(
    "orders",
    schedule=timedelta(minutes=10),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["ckpt"],
    doc_md=__doc__,
):
    CkptReplicateOperator(task_id="replicate", pipeline="pipelines/orders.yaml", retries=1)
