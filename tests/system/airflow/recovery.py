"""Recovery DAGs of these tests: one for all declarations beside this file, and one in which only ada may approve."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_ckpt.dag_factories.recovery import recovery_dag

dag = recovery_dag("recovery", pipelines=sorted(path.stem for path in Path(__file__).parent.glob("*/*.yaml")))

guarded = recovery_dag("guarded_recovery", pipelines=["guarded"], approvers=["ada"])
