"""Create the engine that a pipeline names in ``run.engine``, and tell whether each of its runs starts its own Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.replication.run.engine_protocol import Engine, EngineInfo


def make_engine(pipeline: Pipeline, on_ready: Callable[[EngineInfo], None] | None = None) -> Engine:
    """Return the pipeline's engine, which runs waves on Spark; nothing is started yet.

    :param pipeline: the pipeline's declaration
    :param on_ready: called with the properties of Spark once Spark has started, but not by the ``connect`` engine; None
        to call nothing
    """
    if pipeline.run.engine == "connect":
        from airflow_provider_ckpt.engines.connect import ConnectEngine

        return ConnectEngine(pipeline)
    if pipeline.run.engine == "warm":
        from airflow_provider_ckpt.engines import warm

        if warm.is_enabled(pipeline):
            return warm.WarmEngine(pipeline, on_ready)
    from airflow_provider_ckpt.engines.submit import SubmitEngine

    return SubmitEngine(pipeline, on_ready=on_ready)


def starts_own_spark(pipeline: Pipeline) -> bool:
    """Return whether each run of a pipeline starts a Spark of its own, which no other run shares.

    :param pipeline: the pipeline's declaration
    """
    if pipeline.run.engine == "warm":
        from airflow_provider_ckpt.engines import warm

        return not warm.is_enabled(pipeline)
    return pipeline.run.engine == "submit"
