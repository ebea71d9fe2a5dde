"""DAGs of ``peers.py``: one for each folder beside this file, with a task for each declaration in the folder."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

wanted = get_parsing_context().dag_id
for folder in sorted(path for path in Path(__file__).parent.iterdir() if path.name == (wanted or path.name)):
    if folder.is_dir() and (files := sorted(folder.glob("*.yaml"))):
        with DAG(folder.name, schedule=None):
            for file in files:
                CkptReplicateOperator(task_id=file.stem, pipeline=f"{folder.name}/{file.name}")
