"""Refuse a pipeline whose source reads its sink's output, since each run would deliver its own output again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.outputs import NamesOutputs, ReadsOutputs, WrittenFiles
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.connectors.source_protocol import Source


def refuse_own_output(pipeline: Pipeline, source: Source, sink: Sink) -> None:
    """Raise an error if the source reads a place that the sink writes to.

    :param pipeline: declaration of the pipeline
    :param source: its source, whose ``check`` has passed
    :param sink: its sink, whose ``check`` has passed
    :raises ConfigError: if it does; the error names the configuration key of the source and the place
    """
    if not (isinstance(sink, NamesOutputs) and isinstance(source, ReadsOutputs)):
        return
    for output in sink.outputs():
        if source.reads(output):
            key = pipeline.source.place_key
            other = "directory, or a narrower pattern" if isinstance(output, WrittenFiles) else key
            raise ConfigError(
                f"source.{key}: {pipeline.source.place} reads what this pipeline writes to {output}, so every "
                "run would deliver its own output once more.",
                pipeline=pipeline.name,
                hint=f"Name another {other}.",
            )
