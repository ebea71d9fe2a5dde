"""Where a person means a pipeline to begin again: at a position, a point in time, or a batch of the past."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.actions.actions import Errand, batch_keys, moment
from airflow_provider_ckpt.replication.actions.fenced_actions import position_of_batch


@dataclass(frozen=True, slots=True)
class Goal:
    """How far to rewind, in one of three ways.

    :param position: the first position to read again
    :param time: back to where the checkpoint stood then; ISO 8601, UTC if it names no zone
    :param batch: the batch to read again first, by its receipt in the sink
    """

    position: int | None = None
    time: str | None = None
    batch: str | None = None


def positions(errand: Errand, goal: Goal, partition: str | None = None) -> dict[str, int]:
    """Where each partition is to begin again.

    :param partition: the one that is meant; may be left out where there is but one, and of a time
    :raises ConfigError: unless just one of the three ways to say it was chosen, and it names a place
    """
    if sum(way is not None for way in (goal.position, goal.time, goal.batch)) != 1:
        raise ConfigError(
            "say how far to rewind: to a position, a time or a batch, just one of them.", pipeline=errand.pipeline
        )
    if goal.position is not None:
        return {source_partition(errand, partition): goal.position}
    if goal.time is not None:
        return _at_time(errand, goal.time, partition)
    (key,) = batch_keys([str(goal.batch)])
    if partition not in (None, key.source):
        raise ConfigError(f"{key} is a batch of partition {key.source!r}, not {partition!r}.")
    return position_of_batch(errand.setup(), key)


def source_partition(errand: Errand, name: str | None) -> str:
    """The source partition that is meant: the one that was named, or the only one.

    :raises ConfigError: if there are several and none was named, or there is none of that name
    """
    pipeline, sources = errand.pipeline, _sources(errand)
    known = ", ".join(sources[:10]) or "none yet"
    if name is None and len(sources) != 1:
        raise ConfigError(f"it has {len(sources)} partitions.", pipeline=pipeline, hint=f"Name one: {known}.")
    found = name or sources[0]
    if found not in sources:
        raise ConfigError(f"there is no source partition {found!r}.", pipeline=pipeline, hint=f"Known: {known}.")
    return found


def _at_time(errand: Errand, time: str, partition: str | None) -> dict[str, int]:
    """Where the checkpoint stood then, or where it stands now if that is before."""
    ledger, pipeline = errand.ledger, errand.pipeline
    at = moment(time)
    chosen = {source_partition(errand, partition)} if partition else set(_sources(errand))
    now = {part["id"]: part["committed"] for part in ledger.status(pipeline)["partitions"]}
    then = ledger.positions_at(pipeline, at)
    return {name: min(position, now[name]) for name, position in then.items() if name in chosen}


def _sources(errand: Errand) -> list[str]:
    """The partitions of the source, without the side partitions that re-read a stretch of one.

    :raises ConfigError: if the ledger does not know the pipeline
    """
    partitions = errand.ledger.status(errand.pipeline)["partitions"]
    return [part["id"] for part in partitions if part["ends_at"] is None]
