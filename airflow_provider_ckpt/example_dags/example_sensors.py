"""Wait for a pipeline that another DAG runs: for its lag, its checkpoint, its dead letters or held batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_ckpt.sensors.attention import CkptDeadLettersSensor, CkptHeldBatchesSensor
from airflow_provider_ckpt.sensors.checkpoint import CkptCheckpointSensor
from airflow_provider_ckpt.sensors.lag import CkptLagSensor

# [START howto_sensor_ckpt_shared]
SHARED: dict[str, Any] = {
    "pipeline": "example_customers",
    "deferrable": True,
    "poke_interval": 30,
}
WHILE: dict[str, Any] = {"timeout": timedelta(days=1), "soft_fail": True}
# [END howto_sensor_ckpt_shared]

with DAG("example_ckpt_sensors", schedule=None, tags=["example"], params={"position": 1_000_000}):
    # [START howto_sensor_ckpt_lag]
    CkptLagSensor(task_id="enough_to_do", at_least=10_000, **SHARED)
    CkptLagSensor(task_id="caught_up", at_most=0, **SHARED)
    # [END howto_sensor_ckpt_lag]
    # [START howto_sensor_ckpt_checkpoint]
    CkptCheckpointSensor(task_id="reached", position="{{ params.position }}", **SHARED)
    # [END howto_sensor_ckpt_checkpoint]
    # [START howto_sensor_ckpt_dead_letters]
    CkptDeadLettersSensor(task_id="dead_letters", error_types=["Sink"], **WHILE, **SHARED)
    # [END howto_sensor_ckpt_dead_letters]
    # [START howto_sensor_ckpt_held_batches]
    CkptHeldBatchesSensor(task_id="held", **WHILE, **SHARED)
    # [END howto_sensor_ckpt_held_batches]
