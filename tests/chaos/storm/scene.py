"""Define the storm's pipelines, their databases, and the arguments of a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pipe:
    """A pipeline.

    :param partitions: how many source partitions
    :param at_most_once: whether ``begin`` resolves a batch
    :param window: how far the low watermark follows the checkpoint
    """

    partitions: int
    at_most_once: bool = False
    window: timedelta | None = None

    @property
    def names(self) -> list[str]:
        """Return the ids of its source partitions."""
        return [f"p{number}" for number in range(self.partitions)]


PIPELINES: Mapping[str, Pipe] = {
    "orders": Pipe(2),
    "invoices": Pipe(4, window=timedelta(seconds=2)),
    "clicks": Pipe(1, window=timedelta(seconds=20)),
    "flights": Pipe(3, window=timedelta(hours=1)),
    "parcels": Pipe(2, window=timedelta(seconds=1)),
    "alarms": Pipe(1, at_most_once=True, window=timedelta(seconds=1)),
}


class Defect(StrEnum):
    """Kind of defect that is put into the ledger on purpose, to test the judge; see ``defects.py``."""

    EPOCH = "epoch"
    FORGETS = "forgets"
    COUNTS = "counts"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Orders:
    """The arguments of a worker.

    :param name: of its journal: its slot and how many have had that slot before
    :param slot: where it counts its commands
    :param seed: of its random numbers
    :param defect: what is broken in its ledger
    """

    ledger: str
    sink: str
    folder: Path
    name: str
    slot: int
    seed: str
    defect: Defect | None = None
