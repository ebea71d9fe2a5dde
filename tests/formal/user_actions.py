"""Enumerate users' actions on a pipeline in its present state: every action on every batch, whether it fits or not."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import combinations

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from tests.formal.pool import Deed, Machine, Pool
from tests.formal.worlds import Bounds

ON_BATCHES = (ActionKind.HOLD, ActionKind.RELEASE, ActionKind.SKIP, ActionKind.CANCEL)
ON_PHASES = (ActionKind.DRAIN, ActionKind.STOP, ActionKind.FORCE_STOP, ActionKind.RESUME)


def deeds(bounds: Bounds, pool: Pool, machine: Machine, *, leave: Set[ActionKind]) -> Iterator[Deed]:
    """Return every action of the configuration.

    :param leave: but for these
    """
    chosen = bounds.actions - leave
    for kind in ON_PHASES:
        if kind in chosen:
            yield Deed(kind)
    yield from _on_batches(bounds, pool, machine)
    if machine.generation < bounds.generations:
        for place in machine.parts:
            partition = pool.partition(place)
            if ActionKind.REWIND in chosen and partition.limit is None:
                for to in sorted({0, partition.committed, partition.committed + 1}):
                    yield Deed(ActionKind.REWIND, positions=((partition.id, to),))
            for kind in sorted({ActionKind.REPLAY, ActionKind.RECOVER} & chosen):
                for end in sorted({1, partition.committed, partition.committed + 1} - {0}):
                    yield Deed(kind, ranges=((partition.id, Range(0, end)),))


def _on_batches(bounds: Bounds, pool: Pool, machine: Machine) -> Iterator[Deed]:
    kinds = [kind for kind in ON_BATCHES if kind in bounds.actions]
    if not kinds:
        return
    keys: list[BatchKey] = []
    stale: list[BatchKey] = []
    for place in machine.parts:
        partition = pool.partition(place)
        keys += [batch.key for batch in partition.batches.values()]
        if partition.generation > 1:
            stale.append(BatchKey(partition.generation - 1, partition.id, 0))
    for kind in kinds:
        for key in (*keys, *stale):
            yield Deed(kind, (key,))
        for pair in combinations(keys, 2):
            yield Deed(kind, pair)
        if kind is ActionKind.RELEASE:
            yield Deed(kind)
