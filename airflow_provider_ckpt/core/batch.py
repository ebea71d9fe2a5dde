"""Batches: the state and the attempts of each, as immutable values (semantics, section 1).

The transitions between them are in ``partition.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt, Verdict


class BatchState(StrEnum):
    """State of a batch."""

    PLANNED = "planned"
    IN_FLIGHT = "in_flight"
    HELD = "held"
    DELIVERED = "delivered"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    SENT = "sent"
    SUPERSEDED = "superseded"


BLOCKING = frozenset({BatchState.PLANNED, BatchState.IN_FLIGHT, BatchState.HELD})
"""States of unresolved batches, which the checkpoint may not pass."""

RESOLVED = frozenset({BatchState.DELIVERED, BatchState.REJECTED, BatchState.SKIPPED, BatchState.SENT})
"""States that the checkpoint may pass."""


VERDICT_STATE: Mapping[Verdict, BatchState] = {
    Verdict.DELIVERED: BatchState.DELIVERED,
    Verdict.REJECTED: BatchState.REJECTED,
    Verdict.VOID: BatchState.SKIPPED,
}


class Instruction(StrEnum):
    """Instruction to a lane about a batch; the lane carries it out by claiming the matching verdict in the sink."""

    DELIVER = "deliver"
    REJECT = "reject"
    VOID = "void"

    @property
    def verdict(self) -> Verdict:
        """The verdict that a lane claims in the sink to carry out this instruction."""
        return _VERDICT_OF[self]


_VERDICT_OF = {
    Instruction.DELIVER: Verdict.DELIVERED,
    Instruction.REJECT: Verdict.REJECTED,
    Instruction.VOID: Verdict.VOID,
}


class AttemptOutcome(StrEnum):
    """Outcome of one attempt, as the ledger stores it.

    ``delivered``, ``rejected`` and ``void`` are verdicts; after the others, the batch has no verdict yet.
    """

    DELIVERED = "delivered"
    REJECTED = "rejected"
    VOID = "void"
    FAILED = "failed"
    NOT_ATTEMPTED = "not_attempted"
    STAGED = "staged"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch, as the ledger stores it.

    :param key: the batch's key
    :param range: the source positions that it covers
    :param state: its state
    :param records: number of records that planning counted or estimated; None if it did neither
    :param instruction: the instruction for the next attempt
    :param attempts: number of attempts opened so far, which is also the number of the newest one
    :param failures: failures that lanes reported in this round
    :param finished: failures that lanes reported in all rounds (``n`` in the formula of the retry delay)
    :param round: 1 in the first submission; incremented when a round's attempts are used up
    :param deaths: number of times that the executor died while the batch ran alone
    :param alone: whether the next attempt must run alone in its wave
    :param not_before: earliest start of the next attempt, UTC
    :param epoch: the epoch of the open attempt, while in flight
    :param cancelled: whether the batch was cancelled and is neither started again nor resolved
    :param error: the newest error
    :param receipt: the sink's receipt, once it is known
    """

    key: BatchKey
    range: Range
    state: BatchState = BatchState.PLANNED
    records: int | None = None
    instruction: Instruction = Instruction.DELIVER
    attempts: int = 0
    failures: int = 0
    finished: int = 0
    round: int = 1
    deaths: int = 0
    alone: bool = False
    not_before: datetime | None = None
    epoch: int | None = None
    cancelled: bool = False
    error: ErrorInfo | None = None
    receipt: Receipt | None = field(default=None)

    @property
    def started(self) -> bool:
        """Return whether any attempt was ever opened; from then on only a receipt resolves the batch."""
        return self.attempts > 0

    def resolved(self, receipt: Receipt) -> Batch:
        """Return a copy of the batch that holds a receipt and is in the state of the receipt's verdict.

        Positional arguments instead of ``dataclasses.replace``, because every settled batch passes through here.
        """
        return Batch(
            self.key,
            self.range,
            VERDICT_STATE[receipt.verdict],
            self.records,
            self.instruction,
            self.attempts,
            self.failures,
            self.finished,
            self.round,
            self.deaths,
            self.alone,
            receipt=receipt,
        )
