"""Wait for a pipeline that another DAG runs: for its lag, its checkpoint, its dead letters or held batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_ckpt.sensors.attention import CkptDeadLettersSensor, CkptHeldBatchesSensor
from airflow_provider_ckpt.sensors.checkpoint import CkptCheckpointSensor
from airflow_provider_ckpt.sensors.lag import CkptLagSensor

SHARED: dict[str, Any] = {"pipeline": "example_customers", "deferrable": True, "poke_interval": 30}
WHILE: dict[str, Any] = {"timeout": timedelta(days=1), "soft_fail": True}

with DAG("example_ckpt_sensors", schedule=None, tags=["example"], params={"position": 1_000_000}):
    CkptLagSensor(task_id="enough_to_do", at_least=10_000, **SHARED)
    CkptLagSensor(task_id="caught_up", at_most=0, **SHARED)
    CkptCheckpointSensor(task_id="reached", position="{{ params.position }}", **SHARED)
    CkptDeadLettersSensor(task_id="dead_letters", error_types=["Sink"], **WHILE, **SHARED)
    CkptHeldBatchesSensor(task_id="held", **WHILE, **SHARED)
