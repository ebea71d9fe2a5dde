"""Recovery from Airflow's own pages, for two pipelines by name; only two people may approve.

The simple auth manager knows them by these names; FAB's would know them by numbers.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.dag_factories.recovery import recovery_dag

dag = recovery_dag(
    "example_ckpt_recovery",
    pipelines=["orders", "flights"],
    approvers=["ada", "grace"],
    answer_within=timedelta(hours=4),
)
