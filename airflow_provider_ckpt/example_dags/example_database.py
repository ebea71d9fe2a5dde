"""Replicate many tables of a database, which one file declares, in a few tasks."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_ckpt.task_groups.database import CkptDatabaseTaskGroup

# [START howto_task_group_ckpt_database]
with DAG("example_ckpt_database", schedule=None, max_active_runs=1, tags=["example"]):
    CkptDatabaseTaskGroup(
        "replicate",
        database="databases/shop.yaml",
        pool="default_pool",
    )
# [END howto_task_group_ckpt_database]
