"""Refuse declarations whose keys contradict each other, or that no combination of source, sink and engine supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.installed_connectors import find_connector
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
    _check_order(pipeline)
    _check_dead_letter_store(pipeline)
    refuse_dropping_overrides(pipeline.error_policy)


def _check_order(pipeline: Pipeline) -> None:
    """Refuse ``round_robin``, which spreads a partition over lanes, where the order of its batches matters.

    That is so for sinks that upsert, and for connectors whose records have an order (semantics, section 6).

    :raises ValueError: if ``consumer.strategy`` is ``round_robin`` there
    """
    if pipeline.consumer.strategy != "round_robin":
        return
    if pipeline.sink.upserts:
        raise ValueError("consumer.strategy: round_robin promises no order, so it is refused for an upsert sink")
    ordered = next((part.type for part in (pipeline.source, pipeline.sink) if part.needs_order), None)
    if ordered:
        raise ValueError(f"consumer.strategy: round_robin promises no order, so it is refused for {ordered}")


def _check_dead_letter_store(pipeline: Pipeline) -> None:
    """Check that a dead letter store that needs a connection has one, or what the store takes instead of it.

    :raises ValueError: if it has neither
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
