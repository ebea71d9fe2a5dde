"""Request random actions as users would: most of them fit the state that the user saw, some do not."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.lease import never_dead
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.replication import process_lease_owner as owners
from tests.chaos.storm.commands import Commands

_WEIGHTS: Mapping[ActionKind, float] = {
    ActionKind.HOLD: 4,
    ActionKind.RELEASE: 5,
    ActionKind.SKIP: 4,
    ActionKind.CANCEL: 3,
    ActionKind.DRAIN: 1,
    ActionKind.STOP: 1,
    ActionKind.RESUME: 1,
    ActionKind.REPLAY: 1,
    ActionKind.RECOVER: 1,
    ActionKind.REWIND: 1.5,
    ActionKind.FORCE_STOP: 0.7,
}
_WHILE_NOT_RUNNING: Mapping[ActionKind, float] = {**_WEIGHTS, ActionKind.STOP: 4, ActionKind.RESUME: 14}
_BEHIND_FENCE = frozenset({ActionKind.REWIND, ActionKind.FORCE_STOP})
_SIDES = 8
"""Side partitions beyond which nobody asks for another."""

_FITTING: Mapping[ActionKind, frozenset[BatchState]] = {
    ActionKind.HOLD: frozenset({BatchState.PLANNED, BatchState.IN_FLIGHT}),
    ActionKind.RELEASE: frozenset({BatchState.HELD}),
    ActionKind.SKIP: frozenset({BatchState.PLANNED, BatchState.IN_FLIGHT, BatchState.HELD}),
    ActionKind.CANCEL: frozenset({BatchState.IN_FLIGHT}),
}


def a_person(commands: Commands, pipeline: str, random: Random) -> None:
    """Read the state of a pipeline, and request an action on it as a user does, whoever holds the lease."""
    records = commands.look(pipeline).value
    actor = f"person {commands.journal.next_tag}"
    if not records:
        return
    if random.random() < 0.06:
        commands.break_lease(pipeline, actor)
        return
    act = an_act({name: record.partition for name, record in records.items()}, random, behind_fence=True)
    is_dead = owners.is_dead if random.random() < 0.5 else never_dead
    commands.act(pipeline, act, actor=actor, is_dead=is_dead, dry_run=random.random() < 0.1)


def an_act(partitions: Mapping[str, Partition], random: Random, *, behind_fence: bool) -> Action:
    """Return a random action for a pipeline in a given state.

    :param behind_fence: whether a rewind or a force stop will do
    """
    running = all(partition.phase is Phase.RUNNING for partition in partitions.values())
    weights = dict(_WEIGHTS if running else _WHILE_NOT_RUNNING)
    if not behind_fence:
        weights = {kind: weight for kind, weight in weights.items() if kind not in _BEHIND_FENCE}
    if sum(partition.limit is not None for partition in partitions.values()) >= _SIDES:
        weights[ActionKind.REPLAY] = weights[ActionKind.RECOVER] = 0
    [kind] = random.choices(list(weights), list(weights.values()))
    if kind in _FITTING:
        return Action(kind, batches=_batches(partitions, kind, random))
    sources = [partition for partition in partitions.values() if partition.limit is None]
    if kind is ActionKind.REWIND:
        return Action(
            kind, positions=dict(_back(part, random) for part in random.sample(sources, k=min(2, len(sources))))
        )
    if kind in (ActionKind.REPLAY, ActionKind.RECOVER):
        part = random.choice(sources)
        return Action(kind, ranges=((part.id, _stretch(part, random)),))
    return Action(kind)


def _batches(partitions: Mapping[str, Partition], kind: ActionKind, random: Random) -> tuple[BatchKey, ...]:
    everything = [batch for partition in partitions.values() for batch in partition.batches.values()]
    fitting = [batch for batch in everything if batch.state in _FITTING[kind]]
    if kind is ActionKind.RELEASE and random.random() < 0.5:
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
