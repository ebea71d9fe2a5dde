"""Resolve the target of a rewind, which a user gives as a position, a time or a past batch, to positions."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys, parse_time
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext


@dataclass(frozen=True, slots=True)
class RewindTarget:
    """Target of a rewind, given in one of three ways; the other two fields are None.

    :param position: first position to read again
    :param time: time whose checkpoint to return to; ISO 8601, UTC if the text names no zone
    :param batch: first batch to read again, found by its receipt in the sink
    """

    position: int | None = None
    time: str | None = None
    batch: str | None = None


def resolve_positions(context: ActionContext, target: RewindTarget, partition: str | None = None) -> dict[str, int]:
    """Return the position to which a rewind goes back, by source partition.

    :param context: ledger, pipeline, actor and reason of the action
    :param target: the target
    :param partition: id of the source partition; may be None for a time or a batch, and if the source has only one
    :raises ConfigError: unless exactly one kind of target is given and can be resolved
    """
    if sum(way is not None for way in (target.position, target.time, target.batch)) != 1:
        raise ConfigError(
            "give exactly one target of the rewind: a position, a time or a batch.", pipeline=context.pipeline
        )
    if target.position is not None:
        return {source_partition(context, partition): target.position}
    if target.time is not None:
        return _at_time(context, target.time, partition)
    (key,) = parse_batch_keys([str(target.batch)])
    if partition not in (None, key.source):
        raise ConfigError(f"{key} is a batch of partition {key.source!r}, not {partition!r}.")
    return position_of_batch(context.setup(), key)


def source_partition(context: ActionContext, name: str | None) -> str:
    """Check the name of a source partition and return it; for None, return the only source partition.

    :param context: ledger and pipeline
    :param name: name of the partition, or None
    :raises ConfigError: if there is no partition of this name, or no name was given and there is not exactly one
    """
    pipeline, sources = context.pipeline, _sources(context)
    known = ", ".join(sources[:10]) or "none yet"
    if name is None and len(sources) != 1:
        raise ConfigError(f"it has {len(sources)} partitions.", pipeline=pipeline, hint=f"Name one: {known}.")
    found = name or sources[0]
    if found not in sources:
        raise ConfigError(f"there is no source partition {found!r}.", pipeline=pipeline, hint=f"Known: {known}.")
    return found


def _at_time(context: ActionContext, time: str, partition: str | None) -> dict[str, int]:
    """Return the checkpoint that each source partition had at a time, or its current checkpoint if that is lower.

    If the exact checkpoint of that time is not stored, an earlier position is returned; see
    :meth:`.Ledger.positions_at`.

    :param context: ledger and pipeline
    :param time: the time, ISO 8601
    :param partition: id of the only partition to return; None for all
    """
    ledger, pipeline = context.ledger, context.pipeline
    at = parse_time(time)
    chosen = {source_partition(context, partition)} if partition else set(_sources(context))
    now = {part["id"]: part["committed"] for part in ledger.status(pipeline)["partitions"]}
    past_positions = ledger.positions_at(pipeline, at)
    return {name: min(position, now[name]) for name, position in past_positions.items() if name in chosen}


def _sources(context: ActionContext) -> list[str]:
    """Return the ids of the source partitions, without side partitions.

    :param context: ledger and pipeline
    :raises ConfigError: if the ledger does not know the pipeline
    """
    partitions = context.ledger.status(context.pipeline)["partitions"]
    return [part["id"] for part in partitions if part["ends_at"] is None]


def position_of_batch(setup: PipelineContext, key: BatchKey) -> dict[str, int]:
    """Find a past batch by its receipt in the sink, and return its first position as ``{partition: position}``.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param key: the batch
    :raises ConfigError: if the sink has no receipt of the batch
    """
    opened = OpenConnectors(setup)
    try:
        for receipt in opened.sink.receipts({}):
            if receipt.key == key:
                return {key.source: receipt.range.start}
    finally:
        opened.close()
    raise ConfigError(
        f"the sink holds no receipt of {key}.",
        pipeline=setup.pipeline.name,
        batch=str(key),
        hint="Rewind to a position or a time instead.",
    )
