"""Act on a pipeline from Airflow: rewind, recover, replay, release, skip, drain, resume and force stop.

The ledger's audit log names the user who triggered the DAG run as actor.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_ckpt.operators.batches import CkptReleaseOperator, CkptSkipOperator
from airflow_provider_ckpt.operators.phases import CkptDrainOperator, CkptForceStopOperator, CkptResumeOperator
from airflow_provider_ckpt.operators.recover import CkptRecoverOperator
from airflow_provider_ckpt.operators.replay_dead_letters import CkptReplayDeadLettersOperator
from airflow_provider_ckpt.operators.rewind import CkptRewindOperator

# [START howto_ckpt_action_form]
SHARED: dict[str, Any] = {
    "pipeline": "{{ params.pipeline }}",
    "reason": "{{ params.reason }}",
    "dry_run": "{{ params.dry_run }}",
}
PIPELINES = ["example_customers", "example_orders", "example_prices"]
PARAMS: dict[str, Any] = {
    "pipeline": Param("example_customers", type="string", enum=PIPELINES),
    "reason": Param("", type="string"),
    "dry_run": Param(True, type="boolean"),
    "position": Param(0, type="integer"),
    "batches": Param([], type="array"),
}
# [END howto_ckpt_action_form]

with DAG("example_ckpt_rewind", schedule=None, params=PARAMS, tags=["example"]):
    # [START howto_operator_ckpt_rewind]
    CkptRewindOperator(task_id="rewind", to_position="{{ params.position }}", **SHARED)
    # [END howto_operator_ckpt_rewind]

with DAG("example_ckpt_recover", schedule=None, params=PARAMS, tags=["example"]):
    # [START howto_operator_ckpt_recover]
    CkptRecoverOperator(task_id="recover", **SHARED)
    # [END howto_operator_ckpt_recover]

with DAG("example_ckpt_replay", schedule=None, params=PARAMS, tags=["example"]):
    # [START howto_operator_ckpt_replay_dead_letters]
    CkptReplayDeadLettersOperator(
        task_id="replay",
        error_types=["TransformEvaluation"],
        stop_at=1000,
        **SHARED,
    )
    # [END howto_operator_ckpt_replay_dead_letters]

with DAG("example_ckpt_release", schedule=None, params=PARAMS, tags=["example"]):
    # [START howto_operator_ckpt_release]
    CkptReleaseOperator(task_id="release", batches="{{ params.batches }}", **SHARED)
    # [END howto_operator_ckpt_release]

with DAG("example_ckpt_skip", schedule=None, params=PARAMS, tags=["example"]):
    # [START howto_operator_ckpt_skip]
    CkptSkipOperator(task_id="skip", batches="{{ params.batches }}", **SHARED)
    # [END howto_operator_ckpt_skip]

with DAG("example_ckpt_maintenance", schedule=None, params=PARAMS, tags=["example"]):
    # [START howto_operator_ckpt_drain]
    drain = CkptDrainOperator(task_id="drain", **SHARED)
    # [END howto_operator_ckpt_drain]
    # [START howto_operator_ckpt_resume]
    resume = CkptResumeOperator(task_id="resume", **SHARED)
    # [END howto_operator_ckpt_resume]
    drain >> resume

with DAG("example_ckpt_force_stop", schedule=None, params=PARAMS, tags=["example"]):
    # [START howto_operator_ckpt_force_stop]
    CkptForceStopOperator(task_id="force_stop", **SHARED)
    # [END howto_operator_ckpt_force_stop]
