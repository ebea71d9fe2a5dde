"""What people do, at random: mostly acts that fit the state they saw, and some that do not."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.batch import Batch, BatchKey, BatchState
from airflow_provider_ckpt.core.lease import nobody_is_dead
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.tickets import Phase
from airflow_provider_ckpt.replication import owner as owners
from tests.chaos.storm.commands import Commands

_WEIGHTS: Mapping[ActKind, float] = {
    ActKind.HOLD: 4,
    ActKind.RELEASE: 5,
    ActKind.SKIP: 4,
    ActKind.CANCEL: 3,
    ActKind.DRAIN: 1,
    ActKind.STOP: 1,
    ActKind.RESUME: 1,
    ActKind.REPLAY: 1,
    ActKind.RECOVER: 1,
    ActKind.REWIND: 1.5,
    ActKind.FORCE_STOP: 0.7,
}
_WHILE_NOT_RUNNING: Mapping[ActKind, float] = {**_WEIGHTS, ActKind.STOP: 4, ActKind.RESUME: 14}
_BEHIND_FENCE = frozenset({ActKind.REWIND, ActKind.FORCE_STOP})
_SIDES = 8
"""Side partitions beyond which nobody asks for another."""

_FITTING: Mapping[ActKind, frozenset[BatchState]] = {
    ActKind.HOLD: frozenset({BatchState.PLANNED, BatchState.IN_FLIGHT}),
    ActKind.RELEASE: frozenset({BatchState.HELD}),
    ActKind.SKIP: frozenset({BatchState.PLANNED, BatchState.IN_FLIGHT, BatchState.HELD}),
    ActKind.CANCEL: frozenset({BatchState.IN_FLIGHT}),
}


def a_person(commands: Commands, pipeline: str, random: Random) -> None:
    """Look at a pipeline and do something about it, whoever holds its lease."""
    records = commands.look(pipeline).value
    who = f"person {commands.journal.next_tag}"
    if not records:
        return
    if random.random() < 0.06:
        commands.break_lease(pipeline, who)
        return
    act = an_act({name: record.partition for name, record in records.items()}, random, behind_fence=True)
    is_dead = owners.is_dead if random.random() < 0.5 else nobody_is_dead
    commands.act(pipeline, act, who=who, is_dead=is_dead, dry_run=random.random() < 0.1)


def an_act(partitions: Mapping[str, Partition], random: Random, *, behind_fence: bool) -> Act:
    """An act for a pipeline as it was seen.

    :param behind_fence: whether a rewind or a force stop will do
    """
    running = all(partition.phase is Phase.RUNNING for partition in partitions.values())
    weights = dict(_WEIGHTS if running else _WHILE_NOT_RUNNING)
    if not behind_fence:
        weights = {kind: weight for kind, weight in weights.items() if kind not in _BEHIND_FENCE}
    if sum(partition.limit is not None for partition in partitions.values()) >= _SIDES:
        weights[ActKind.REPLAY] = weights[ActKind.RECOVER] = 0
    [kind] = random.choices(list(weights), list(weights.values()))
    if kind in _FITTING:
        return Act(kind, batches=_batches(partitions, kind, random))
    sources = [partition for partition in partitions.values() if partition.limit is None]
    if kind is ActKind.REWIND:
        return Act(kind, positions=dict(_back(part, random) for part in random.sample(sources, k=min(2, len(sources)))))
    if kind in (ActKind.REPLAY, ActKind.RECOVER):
        part = random.choice(sources)
        return Act(kind, spans=((part.id, _stretch(part, random)),))
    return Act(kind)


def _batches(partitions: Mapping[str, Partition], kind: ActKind, random: Random) -> tuple[BatchKey, ...]:
    everything = [batch for partition in partitions.values() for batch in partition.batches.values()]
    fitting = [batch for batch in everything if batch.state in _FITTING[kind]]
    if kind is ActKind.RELEASE and random.random() < 0.5:
        return ()
    chosen: list[Batch] = random.sample(fitting, k=min(len(fitting), random.randint(1, 3)))
    if everything and random.random() < 0.1:
        chosen.append(random.choice(everything))
    return tuple(batch.key for batch in chosen) or (BatchKey(1, "nowhere", 0),)


def _back(partition: Partition, random: Random) -> tuple[str, int]:
    if random.random() < 0.1:
        return partition.id, partition.committed + 1
    return partition.id, max(partition.base, partition.committed - random.randint(0, 200))


def _stretch(partition: Partition, random: Random) -> Range:
    end = partition.committed if random.random() < 0.9 else partition.committed + 1
    start = max(0, end - random.randint(1, 150))
    return Range(start, max(end, start + 1))
