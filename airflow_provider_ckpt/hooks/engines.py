"""Which engine a pipeline runs on, by its ``run.engine``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.replication.engine import Engine


def make_engine(pipeline: Pipeline) -> Engine:
    """The pipeline's engine; nothing is started yet."""
    if pipeline.run.engine == "connect":
        from airflow_provider_ckpt.hooks.connect_engine import ConnectEngine

        return ConnectEngine(pipeline)
    from airflow_provider_ckpt.hooks.submit_engine import SubmitEngine

    return SubmitEngine(pipeline)
