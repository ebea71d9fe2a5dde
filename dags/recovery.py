"""Recovery from Airflow's own pages, for every pipeline that is declared beside this file."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_ckpt.dag_factories.recovery import recovery_dag

dag = recovery_dag(pipelines=Path(__file__).parent / "pipelines")
