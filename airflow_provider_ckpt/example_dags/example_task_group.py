"""Replicate with a task group, and with a mapped task group for each of several tables."""

from __future__ import annotations

from airflow.sdk import DAG, task_group

from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

TABLES = ("orders", "customers", "prices")

# [START howto_task_group_ckpt_replication]
with DAG("example_ckpt_task_group", schedule=None, max_active_runs=1, tags=["example"]):
    CkptReplicationTaskGroup(
        "replicate",
        pipeline="pipelines/customers.yaml",
        deferrable=True,
    )
# [END howto_task_group_ckpt_replication]

# [START howto_task_group_ckpt_expanded]
with DAG("example_ckpt_tables", schedule=None, max_active_runs=1, tags=["example"]):

    @task_group
    def table(pipeline: dict[str, object]) -> None:
        """Replicate one table; each mapped instance has its own lease, checkpoint and branches."""
        CkptReplicationTaskGroup("replicate", pipeline=pipeline)

    table.expand(
        pipeline=[
            {
                "name": f"example_{name}",
                "source": {
                    "type": "postgres",
                    "connection": "shop",
                    "table": name,
                    "cursor": "id",
                },
                "sink": {
                    "type": "postgres",
                    "connection": "warehouse",
                    "table": name,
                    "mode": "upsert",
                    "key": ["id"],
                },
            }
            for name in TABLES
        ]
    )
# [END howto_task_group_ckpt_expanded]
