"""Actions on a pipeline as tasks; the ledger's audit log names the user who triggers the DAG."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_ckpt.operators.batches import CkptReleaseOperator, CkptSkipOperator
from airflow_provider_ckpt.operators.phases import CkptDrainOperator, CkptForceStopOperator, CkptResumeOperator
from airflow_provider_ckpt.operators.recover import CkptRecoverOperator
from airflow_provider_ckpt.operators.replay_dead_letters import CkptReplayDeadLettersOperator
from airflow_provider_ckpt.operators.rewind import CkptRewindOperator

SHARED: dict[str, Any] = {
    "pipeline": "{{ params.pipeline }}",
    "reason": "{{ params.reason }}",
    "dry_run": "{{ params.dry_run }}",
}
PARAMS: dict[str, Any] = {
    "pipeline": Param(
        "example_customers", type="string", enum=["example_customers", "example_orders", "example_prices"]
    ),
    "reason": Param("", type="string"),
    "dry_run": Param(True, type="boolean"),
    "position": Param(0, type="integer"),
    "batches": Param([], type="array"),
}

with DAG("example_ckpt_again", schedule=None, params=PARAMS, tags=["example"]):
    CkptRewindOperator(task_id="rewind", to_position="{{ params.position }}", **SHARED)

with DAG("example_ckpt_recover", schedule=None, params=PARAMS, tags=["example"]):
    CkptRecoverOperator(task_id="recover", **SHARED)

with DAG("example_ckpt_replay", schedule=None, params=PARAMS, tags=["example"]):
    CkptReplayDeadLettersOperator(task_id="replay", error_types=["TransformEvaluation"], stop_at=1000, **SHARED)

with DAG("example_ckpt_held", schedule=None, params=PARAMS, tags=["example"]):
    CkptReleaseOperator(task_id="release", batches="{{ params.batches }}", **SHARED)

with DAG("example_ckpt_skip", schedule=None, params=PARAMS, tags=["example"]):
    CkptSkipOperator(task_id="skip", batches="{{ params.batches }}", **SHARED)

with DAG("example_ckpt_maintenance", schedule=None, params=PARAMS, tags=["example"]):
    CkptDrainOperator(task_id="drain", **SHARED) >> CkptResumeOperator(task_id="resume", **SHARED)

with DAG("example_ckpt_stop", schedule=None, params=PARAMS, tags=["example"]):
    CkptForceStopOperator(task_id="force_stop", **SHARED)
