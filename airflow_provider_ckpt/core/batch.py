"""Define batches as immutable values: the state of a batch, and the counters and outcomes of its attempts.

The transitions between the states (semantics, section 1) are in ``partition.py``, ``attempts.py``,
``acknowledgements.py``, ``held_batches.py`` and ``executor_killer.py``.
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
    """State of a batch in the ledger (semantics, section 1).

    - ``planned``: stored, not being sent; new, or returned after an attempt without a verdict
    - ``in_flight``: an attempt is open
    - ``held``: waits for a user to release or skip it
    - ``delivered``, ``rejected``, ``skipped``: resolved by a receipt with the verdict delivered, rejected or void; a
      batch that was never started can also be skipped without a receipt
    - ``sent``: with at-most-once delivery, resolved before it is sent
    - ``superseded``: replaced by a rewind or by an imported receipt
    """

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
"""States of resolved batches, which the checkpoint may pass."""


VERDICT_STATE: Mapping[Verdict, BatchState] = {
    Verdict.DELIVERED: BatchState.DELIVERED,
    Verdict.REJECTED: BatchState.REJECTED,
    Verdict.VOID: BatchState.SKIPPED,
}


class Instruction(StrEnum):
    """The verdict that the next attempt of a batch is to obtain.

    - ``deliver``: send the records
    - ``reject``: turn all records into dead letters, and claim the verdict ``rejected``
    - ``void``: send nothing, and claim the verdict ``void``
    """

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

    - ``delivered``, ``rejected``, ``void``: the sink has a receipt with this verdict, which resolves the batch
    - ``failed``: the lane reported an error
    - ``not_attempted``: the lane never executed the attempt
    - ``staged``: the lane wrote data files, and the commit of the two-phase sink (Delta, Iceberg) has yet to add them
    - ``cancelled``: a user cancelled the attempt
    - ``abandoned``: a crash or a forced stop interrupted the attempt
    - ``fenced``: the attempt was left open by a run of an older epoch
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
    :param instruction: whether the next attempt delivers the batch, rejects it or voids it
    :param attempts: number of attempts opened so far, which is also the number of the newest one
    :param failures: failures that lanes reported in this round
    :param finished: failures that lanes reported in all rounds, with which the delay of a retry grows
    :param round: 1 in the first submission; incremented when a round's attempts are used up
    :param deaths: number of times that the executor died while the batch ran alone
    :param alone: whether the next attempt must run alone in its wave
    :param not_before: earliest start of the next attempt, UTC; None if it may start at once
    :param epoch: the epoch of the open attempt; None unless the batch is in flight
    :param cancelled: whether the batch was cancelled and is neither started again nor resolved
    :param error: the newest error; None if there was none
    :param receipt: the sink's receipt; None until the ledger knows it
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
        """True if an attempt was ever opened; from then on only a receipt in the sink resolves the batch."""
        return self.attempts > 0

    def resolved(self, receipt: Receipt) -> Batch:
        """Return a copy of the batch that has a receipt, and the state that follows from the receipt's verdict.

        In the copy, ``not_before``, ``epoch``, ``cancelled`` and ``error`` have their defaults. The copy is made by the
        constructor instead of ``dataclasses.replace``, which is slower, because the method is called for every batch
        that is settled.

        :param receipt: the sink's receipt of this batch
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
