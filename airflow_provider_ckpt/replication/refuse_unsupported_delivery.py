"""Refuse a delivery guarantee that a pipeline's sink cannot give (semantics, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.sink_protocol import Sink


def refuse_unsupported_delivery(pipeline: Pipeline, sink: Sink) -> None:
    """Raise an error if a pipeline declares ``delivery: exactly_once`` and its sink does not support it.

    :param pipeline: declaration of the pipeline
    :param sink: its sink
    :raises ConfigError: if this is so; the error names the key and the remedy
    """
    if pipeline.delivery == "exactly_once" and not sink.exactly_once:
        raise ConfigError(
            f"delivery: exactly_once is not supported by a {pipeline.sink.type} sink.",
            pipeline=pipeline.name,
            hint="Write at_least_once, or name another sink.",
        )
