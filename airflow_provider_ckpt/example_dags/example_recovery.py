"""Repair two pipelines from Airflow's UI; only two users may approve an action.

With the simple auth manager the ids of users are their names; with FAB's they are numbers.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.dag_factories.recovery import recovery_dag

# [START howto_ckpt_recovery_dag]
dag = recovery_dag(
    "example_ckpt_recovery",
    pipelines=["orders", "flights"],
    approvers=["ada", "grace"],
    answer_within=timedelta(hours=4),
)
# [END howto_ckpt_recovery_dag]
