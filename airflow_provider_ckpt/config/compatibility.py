"""Refuse declarations whose keys contradict each other, or that no combination of source, sink and engine supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.delivery import DeadLetterDestination
from airflow_provider_ckpt.core.error_policy import refuse_dropping_overrides

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


def refuse_contradictions(pipeline: Pipeline) -> None:
    """Raise an error if keys of a declaration contradict each other.

    :param pipeline: the declaration; each of its keys is valid on its own
    :raises ValueError: if there is a contradiction; the message names the keys, and what to write instead
    """
    if pipeline.source.type == "files":
        _check_file_format(pipeline)
    if pipeline.source.type in ("postgres", "jdbc") and pipeline.transform.decode:
        raise ValueError(f"a {pipeline.source.type} source has columns already; leave transform.decode out")
    if pipeline.source.type == "jdbc" and pipeline.run.engine == "connect":
        raise ValueError("run.engine: connect cannot read a jdbc source; write warm or submit")
    _check_order(pipeline)
    _check_dead_letter_store(pipeline)
    refuse_dropping_overrides(pipeline.error_policy)


def _check_file_format(pipeline: Pipeline) -> None:
    """Check that the format of a source of type ``files`` fits ``transform.decode`` and ``error_handling``.

    :raises ValueError: if it does not; the message names the keys
    """
    form, decode = pipeline.source.format, pipeline.transform.decode
    if form == "parquet" and decode:
        raise ValueError("Parquet files have columns already; leave transform.decode out")
    if form == "parquet" and pipeline.error_handling.missing_field_behavior == "skip":
        raise ValueError("missing_field_behavior: skip is not supported for Parquet files; use error or null")
    if form != "parquet" and not decode:
        raise ValueError("a files source needs transform.decode (json or csv) and transform.schema")
    if (form == "jsonl" and decode != "json") or (form == "csv" and decode != "csv"):
        raise ValueError(f"source.format: {form} and transform.decode: {decode} contradict each other")


def _check_order(pipeline: Pipeline) -> None:
    """Refuse ``round_robin``, which spreads a partition over lanes, where the order of its batches matters.

    That is so for upsert sinks and for Kafka (semantics, section 6).

    :raises ValueError: if ``consumer.strategy`` is ``round_robin`` there
    """
    if pipeline.consumer.strategy != "round_robin":
        return
    if pipeline.sink.mode == "upsert":
        raise ValueError("consumer.strategy: round_robin promises no order, so it is refused for an upsert sink")
    if "kafka" in (pipeline.source.type, pipeline.sink.type):
        raise ValueError("consumer.strategy: round_robin promises no order, so it is refused for kafka")


def _check_dead_letter_store(pipeline: Pipeline) -> None:
    """Check that a dead letter store in Kafka or PostgreSQL has a connection, or brokers in the case of Kafka.

    :raises ValueError: if it has neither
    """
    queue = pipeline.dead_letter_queue
    wanting = {
        DeadLetterDestination.KAFKA: "connection or brokers",
        DeadLetterDestination.POSTGRES: "connection",
    }.get(queue.sink)
    if wanting and queue.in_other_store and not queue.brokers and pipeline.dead_letter_connection is None:
        raise ValueError(f"dead_letter_queue.sink: {queue.sink} needs {wanting}")
