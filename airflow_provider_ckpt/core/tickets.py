"""Events and tickets of the state machine.

A ticket proves that its batch was in a certain state. Each transition takes the ticket of the state that it starts
from, so a transition from a wrong state is a type error already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a partition, which the ledger appends to the audit log.

    :param kind: the kind of event
    :param partition: the partition's id; empty if the event concerns the whole pipeline
    :param generation: the partition's generation
    :param seq: the batch's seq; None if the event concerns the partition
    :param detail: JSON-ready details, which depend on the kind
    """

    kind: str
    partition: str
    generation: int
    seq: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedTicket:
    """Ticket to start a planned batch."""

    key: BatchKey


@dataclass(frozen=True, slots=True)
class InFlightTicket:
    """Ticket to end the open attempt of a batch."""

    key: BatchKey
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True)
class HeldTicket:
    """Ticket to release a held batch."""

    key: BatchKey
