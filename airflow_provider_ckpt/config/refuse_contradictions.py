"""Refuse declarations whose keys contradict each other, or that source, sink and engine cannot carry out together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.installed_connectors import find_connector
from airflow_provider_ckpt.config.schema import refuse_without_effect
from airflow_provider_ckpt.core.error_policy import refuse_dropping_overrides

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


def refuse_contradictions(pipeline: Pipeline) -> None:
    """Raise an error if keys of a declaration contradict each other.

    :param pipeline: the declaration; each of its keys is valid on its own
    :raises ValueError: if there is a contradiction; the message names the keys, and what to write instead
    """
    pipeline.source.check(pipeline)
    pipeline.sink.check(pipeline)
    if pipeline.source.has_columns and pipeline.transform.decode:
        raise ValueError(f"a {pipeline.source.type} source has columns already; leave transform.decode out")
    if pipeline.source.read_by_spark and pipeline.run.engine == "connect":
        raise ValueError(f"run.engine: connect cannot read a {pipeline.source.type} source; write warm or submit")
    refuse_round_robin_if_ordered(pipeline)
    _check_refresh(pipeline)
    _check_creation(pipeline)
    _check_dead_letter_store(pipeline)
    refuse_without_effect(pipeline)
    refuse_dropping_overrides(pipeline.error_policy)


def refuse_round_robin_if_ordered(pipeline: Pipeline) -> None:
    """Refuse ``round_robin``, which spreads a partition's batches over all lanes, if the order of batches matters.

    The order matters for sinks that upsert, and for connectors whose records have an order (semantics, section 6).

    :param pipeline: the declaration
    :raises ValueError: if ``consumer.strategy`` is ``round_robin`` for such a pipeline
    """
    if pipeline.consumer.strategy != "round_robin":
        return
    if pipeline.sink.upserts:
        raise ValueError("consumer.strategy: round_robin promises no order, so it is refused for an upsert sink")
    ordered = next((part.type for part in (pipeline.source, pipeline.sink) if part.needs_order), None)
    if ordered:
        raise ValueError(f"consumer.strategy: round_robin promises no order, so it is refused for {ordered}")


def _check_refresh(pipeline: Pipeline) -> None:
    """Refuse ``source.mode: full`` if the sink does not replace all rows, and a sink that does with any other source.

    :param pipeline: the declaration
    :raises ValueError: if one is given without the other, or if ``source.mode: full`` is combined with at-most-once
        delivery or with the section ``schema``
    """
    full, replaces = pipeline.source.is_full, pipeline.sink.replaces is not None
    if full and not replaces:
        raise ValueError(
            "source.mode: full reads every row in each run, so any sink without mode: replace would get each row again "
            "and again; write sink.mode: replace (postgres, sql, delta or iceberg), or give source.cursor and leave "
            "source.mode out"
        )
    if replaces and not full:
        raise ValueError(
            "sink.mode: replace needs a source that is read as a whole, or it would remove all rows but the newest; "
            "write source.mode: full (postgres or sql), or sink.mode: append or upsert"
        )
    if full and pipeline.schema_ is not None:
        raise ValueError(
            "schema has no effect with source.mode: full, which reads all columns in each run; leave it out"
        )
    if full and pipeline.delivery == "at_most_once":
        raise ValueError(
            "delivery: at_most_once may leave rows out, so no refresh would be complete; leave delivery out"
        )


def _check_creation(pipeline: Pipeline) -> None:
    """Refuse ``sink.create`` if the target's columns are unknown before Spark has run.

    :param pipeline: the declaration
    :raises ValueError: if the source does not report the types of its columns, or the transform determines the columns
    """
    if not pipeline.sink.creates_target:
        return
    if not pipeline.source.reports_columns:
        raise ValueError(
            f"sink.create: a {pipeline.source.type} source does not tell the types of its columns; create the target "
            "and leave sink.create out"
        )
    if pipeline.transform.select or pipeline.transform.python:
        chooser = "select" if pipeline.transform.select else "python"
        raise ValueError(
            f"sink.create gives the target the source's columns, but transform.{chooser} chooses others; create the "
            "target and leave sink.create out"
        )


def _check_dead_letter_store(pipeline: Pipeline) -> None:
    """Refuse a dead letter store without the connection that it needs, unless ``brokers`` or such a key replaces it.

    :param pipeline: the declaration
    :raises ValueError: if both the connection and the key that replaces it are missing; the message names the keys
    """
    queue = pipeline.dead_letter_queue
    if not queue.in_other_store:
        return
    store = find_connector(queue.sink).dead_letter_store
    if store is None or not store.needs_connection or pipeline.dead_letter_connection is not None:
        return
    instead = store.instead_of_connection
    if instead is None or not getattr(queue, instead):
        wanting = " or ".join(["connection", *filter(None, [instead])])
        raise ValueError(f"dead_letter_queue.sink: {queue.sink} needs {wanting}")
