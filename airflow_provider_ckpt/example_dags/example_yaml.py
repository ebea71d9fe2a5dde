"""Create a DAG from each YAML file in ``pipelines/`` that has a section ``dag``."""

from __future__ import annotations

from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dags

globals().update(pipeline_dags(__file__, "pipelines"))
