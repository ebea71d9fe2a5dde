"""Tasks of one's own behind the branches of a task group: one for dead letters, one for whatever the run brought."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

with DAG("example_ckpt_branches", schedule=None, max_active_runs=1, tags=["example"]):
    replicate = CkptReplicationTaskGroup("replicate", pipeline="pipelines/customers.yaml")

    @task
    def complain(ti: Any = None) -> None:
        """Skipped, like the branch it stands behind, where no record was dead-lettered."""
        found = ti.xcom_pull(task_ids="replicate.dead_letters")
        print(f"{found['dead_lettered']} records are in {found['where']}: {found['errors']}")

    @task
    def refresh(ti: Any = None) -> None:
        """Whatever branches were chosen, unless one of the group's tasks failed."""
        print(ti.xcom_pull(task_ids="replicate.summary")["records"])

    replicate.get_child_by_label("dead_letters") >> complain()
    replicate >> refresh()
