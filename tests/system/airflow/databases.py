"""DAG of ``test_database.py``: a table is dropped after the tables were found and before they are replicated."""

from __future__ import annotations

import os

import psycopg2
from airflow.sdk import DAG, task

from airflow_provider_ckpt.task_groups.database import CkptDatabaseTaskGroup

with DAG("many", schedule=None) as dag:
    CkptDatabaseTaskGroup("replicate", database="many.yaml")

    @task
    def drop() -> None:
        """Drop a table, if it is still there."""
        connection = psycopg2.connect(os.environ["AIRFLOW_CONN_STORE"])
        with connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS many.t5")
        connection.close()

    dag.get_task("replicate.find_tables") >> drop() >> dag.get_task("replicate.tables")
