"""DAGs of these tests: one for each declaration beside this file, of the kind that its folder stands for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_parsing_context, task

from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

ONCE_MORE = {"retries": 1, "retry_delay": timedelta(seconds=1)}
ONLY = get_parsing_context().dag_id
"""The one DAG that a task about to run needs."""

for path in sorted(Path(__file__).parent.glob("*/*.yaml")):
    kind, name, declaration = path.parent.name, path.stem, f"{path.parent.name}/{path.name}"
    if ONLY not in (None, name):
        continue
    daily = {"schedule": "@daily", "start_date": datetime(2024, 1, 1, tzinfo=UTC), "catchup": False}
    with DAG(name, default_args=ONCE_MORE, **(daily if kind == "daily" else {"schedule": None})):
        if kind in ("single", "daily"):
            CkptReplicateOperator(task_id="replicate", pipeline=declaration)
        else:
            group = CkptReplicationTaskGroup("replicate", pipeline=declaration, deferrable=kind == "deferred")

            if kind == "followed":

                @task
                def after(ti: Any = None) -> Any:
                    """Return the pipeline of the summary; by the trigger rule, the tasks directly before succeeded."""
                    return {"after": ti.xcom_pull(task_ids="replicate.summary")["pipeline"]}

                group >> after()
