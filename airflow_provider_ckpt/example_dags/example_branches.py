"""Add two tasks after a task group's branches: one for dead letters, and one that runs after every successful run."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

# [START howto_task_group_ckpt_branches]
with DAG("example_ckpt_branches", schedule=None, max_active_runs=1, tags=["example"]):
    replicate = CkptReplicationTaskGroup("replicate", pipeline="pipelines/customers.yaml")

    @task
    def complain(ti: Any = None) -> None:
        """Report dead letters; skipped together with its branch if no record was dead-lettered."""
        found = ti.xcom_pull(task_ids="replicate.dead_letters")
        print(f"{found['dead_lettered']} records are in {found['where']}: {found['errors']}")

    @task
    def refresh(ti: Any = None) -> None:
        """Run after the group, whichever branches were chosen, unless a task of the group failed."""
        print(ti.xcom_pull(task_ids="replicate.summary")["records"])

    replicate.get_child_by_label("dead_letters") >> complain()
    replicate >> refresh()
# [END howto_task_group_ckpt_branches]
