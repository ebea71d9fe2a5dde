"""DAGs of ``airflow.py``: one for each declaration beside this file; a task creates only its own DAG.

An operator that does a whole run reports its working time in seconds, without Airflow's own share.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_parsing_context

from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator
from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

_BEGUN: list[float] = []


def begin(context: Any) -> None:
    """Before the operator."""
    if context["dag"].dag_id == "plain":
        os.environ["AIRFLOW__CKPT__SPARK_HEAD_START"] = "False"
    _BEGUN.append(time.monotonic())


def end(context: Any, result: Any) -> None:
    """After it."""
    context["ti"].xcom_push("seconds", time.monotonic() - _BEGUN.pop())


wanted = get_parsing_context().dag_id
for path in sorted(Path(__file__).parent.glob("*.yaml" if wanted is None else f"{wanted}.yaml")):
    with DAG(path.stem, schedule=None):
        if path.stem == "grouped":
            CkptReplicationTaskGroup("replicate", pipeline=path.name)
        else:
            CkptReplicateOperator(task_id="replicate", pipeline=path.name, pre_execute=begin, post_execute=end)
