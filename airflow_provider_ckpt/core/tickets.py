"""What the state machine hands out: the phase that it is in, a ticket a state, and the events that a transition caused.

A ticket can be had only from a batch in its state, so a wrong transition is a type error before it is a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.batch import BatchKey


class Phase(StrEnum):
    """What the pipeline may do (semantics, section 3)."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a partition; the ledger appends it to the audit trail.

    :param seq: the batch's, or None where the event speaks of the partition
    """

    kind: str
    partition: str
    generation: int
    seq: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedTicket:
    """The right to begin a batch that is planned."""

    key: BatchKey


@dataclass(frozen=True, slots=True)
class InFlightTicket:
    """The right to end the open attempt of a batch."""

    key: BatchKey
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True)
class HeldTicket:
    """The right to release a batch that policy or a person holds."""

    key: BatchKey
