"""Define tickets, which prove the state of a batch, and the events of a partition for the audit log.

A ticket is a small value that proves that its batch was in a certain state. A method that changes a batch takes the
ticket of the state in which the batch must be, so that a call for a batch in another state is a type error.
:class:`~.partition_view.PartitionView` checks the state and creates tickets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a partition, which the ledger appends to the audit log.

    :param kind: the kind of event, such as ``planned`` or ``checkpoint``
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
    """Proof that a batch is planned; needed to begin, hold or skip it.

    :param key: the batch
    """

    key: BatchKey


@dataclass(frozen=True, slots=True)
class InFlightTicket:
    """Proof that an attempt of a batch is open; needed to end exactly this attempt.

    :param key: the batch
    :param attempt: number of the open attempt, from 1
    :param epoch: epoch of the run that opened it
    """

    key: BatchKey
    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True)
class HeldTicket:
    """Proof that a batch is held; needed to release it.

    :param key: the batch
    """

    key: BatchKey
