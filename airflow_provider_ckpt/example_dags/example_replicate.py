"""Replicate in one task; a second DAG runs whenever the checkpoint has moved."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_ckpt.assets.pipeline import pipeline_asset
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

# [START howto_operator_ckpt_replicate]
with DAG(
    "example_ckpt_replicate",
    schedule=timedelta(minutes=10),
    catchup=False,
    max_active_runs=1,
    tags=["example"],
):
    CkptReplicateOperator(
        task_id="replicate",
        pipeline="pipelines/customers.yaml",
        retries=1,
    )
# [END howto_operator_ckpt_replicate]

# [START howto_ckpt_pipeline_asset]
CUSTOMERS = pipeline_asset("example_customers")

with DAG("example_ckpt_follow", schedule=[CUSTOMERS], catchup=False, tags=["example"]):

    @task
    def refresh(triggering_asset_events: Any = None) -> None:
        """Process the new records; the event holds the checkpoint before and after the run."""
        for event in triggering_asset_events[CUSTOMERS]:
            print(event.extra["checkpoint"], event.extra["epoch"])

    refresh()
# [END howto_ckpt_pipeline_asset]
