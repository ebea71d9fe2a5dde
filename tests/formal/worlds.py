"""Define a world: a pipeline's ledger, its lease, the sink, and the lanes that may still claim receipts there.

The ledger is the real core (see ``pool.py``). The sink is a model of what every fence guarantees: a lane's claim takes
effect only while the fence has the lane's epoch, and the first claim of a batch wins.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, NamedTuple

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt
from tests.formal.memory import Memory


class Stage(IntEnum):
    """The progress of the lease's holder."""

    FREE = 0
    """Nobody holds it."""
    GONE = 1
    """Its holder died: with a ledger that a backup replaced, or before another ledger's receipts were adopted."""
    ACQUIRED = 2
    """The sink's fence is still the one before."""
    FRESH = 3
    """Fenced and reconciled, and nothing begun yet."""
    RUNNING = 4


class Lane(NamedTuple):
    """An attempt that may still claim its verdict in the sink, whatever the ledger thinks of it."""

    key: BatchKey
    range: Range
    attempt: int
    epoch: int
    instruction: Instruction


class Outside(NamedTuple):
    """The state outside the ledger.

    :param fence: the epoch of the sink's fence
    :param sink: all receipts that were ever claimed
    :param lanes: those that the fence does not shut out and whose batch has no receipt, in order
    :param memory: what the ledger remembers of the sink; kept only where the sink may be set back
    """

    fence: int
    sink: frozenset[Receipt] = frozenset()
    lanes: tuple[Lane, ...] = ()
    memory: Memory = Memory()


class Saved(NamedTuple):
    """A backup of the ledger.

    :param machine: by number
    """

    machine: int
    epoch: int
    held: bool


class World(NamedTuple):
    """Everything that decides what can happen next, by number.

    :param machine: a :class:`~.pool.Machine`: the ledger
    :param epoch: the newest that the ledger has granted
    :param outside: an :class:`Outside`
    :param saved: a :class:`Saved`, or one of the three below
    """

    machine: int
    epoch: int
    stage: int
    outside: int
    saved: int


UNSAVED, RESTORED, ADOPTED = -1, -2, -3
"""There is no backup; it was restored; the receipts of another ledger were adopted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a configuration, and the events that may happen in it.

    :param partitions: source partitions
    :param positions: of each, at most
    :param sizes: of batches, in positions
    :param batches: numbers given out in each partition and generation, at most
    :param attempts: of each batch, at most
    :param epochs: granted, at most
    :param generations: at most
    :param actions: the actions that users may take
    :param failures: whether failures are counted, by rounds, and wait; otherwise they only give the batch back
    :param gives_up: whether policy may reject or hold a batch after an attempt
    :param deaths: whether executors may die of a batch
    :param backup: whether the ledger may be saved and restored, once
    :param sink_backup: whether the sink may be copied and set back to that copy, once; with one partition
    :param adopts: whether the receipts of another ledger, cut in other places, may be adopted, once
    """

    partitions: int = 1
    positions: int = 3
    sizes: tuple[int, ...] = (1,)
    batches: int = 3
    attempts: int = 2
    epochs: int = 2
    generations: int = 1
    actions: frozenset[ActionKind] = frozenset()
    failures: bool = False
    gives_up: bool = False
    deaths: bool = False
    at_most_once: bool = False
    backup: bool = False
    sink_backup: bool = False
    adopts: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict of what bounds it."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return values | {"actions": sorted(self.actions), "sizes": list(self.sizes)}
