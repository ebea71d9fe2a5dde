"""Simulate lanes: they claim the verdict of a batch or fail, and report all, a part or none of the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from sqlalchemy.exc import DBAPIError

from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, Instruction
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, FencedError
from airflow_provider_ckpt.core.on_exhausted import OnExhausted
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy, RetryPolicy
from airflow_provider_ckpt.core.wave_messages import Outcome
from tests.chaos.storm.sink import AbstractSink

VERDICTS = {
    Instruction.DELIVER: Verdict.DELIVERED,
    Instruction.REJECT: Verdict.REJECTED,
    Instruction.VOID: Verdict.VOID,
}
_ERRORS = (
    ErrorInfo(ErrorType.SINK, "connection reset", recoverable=True, sqlstate="08006"),
    ErrorInfo(ErrorType.SINK, "connection reset", recoverable=True, sqlstate="08006"),
    ErrorInfo(ErrorType.SINK, "value too long", sqlstate="22001"),
    ErrorInfo(ErrorType.SINK, "no route to host", recoverable=True, sqlstate="08001", is_outage=True),
    ErrorInfo(ErrorType.TRANSFORM_EVALUATION, "a transform \x00 that fails"),
    ErrorInfo(ErrorType.IO, "read timed out", recoverable=True),
    ErrorInfo(ErrorType.GENERIC, "nobody knows"),
)
_BACK = (AttemptOutcome.CANCELLED, AttemptOutcome.ABANDONED, AttemptOutcome.STAGED, AttemptOutcome.FENCED)
_POLICIES = [
    DeliveryPolicy(RetryPolicy(attempts, 1, 40, 2.0, 0.1, rounds, on_exhausted), dead_letters)
    for attempts, rounds, on_exhausted, dead_letters in (
        (1, 1, OnExhausted.DLQ, True),
        (1, 2, OnExhausted.HOLD, True),
        (2, 1, OnExhausted.HOLD, True),
        (3, 3, OnExhausted.DLQ, True),
        (1, 1, OnExhausted.FAIL, True),
        (2, 2, OnExhausted.DLQ, False),
    )
]


def counts_of(span: Range, verdict: Verdict) -> Counts:
    """Records of a range by their fate: one a position, some filtered, some dead letters of their own."""
    size = span.end - span.start
    if verdict is Verdict.VOID:
        return Counts()
    if verdict is Verdict.REJECTED:
        return Counts(size, 0, 0, size)
    dead = sum(position % 13 == 7 for position in range(span.start, span.end))
    filtered = sum(position % 7 == 3 and position % 13 != 7 for position in range(span.start, span.end))
    return Counts(size, size - dead - filtered, filtered, dead)


def receipt_for(batch: Batch, epoch: int, verdict: Verdict) -> Receipt:
    """The receipt that a lane claims for a batch."""
    counts = counts_of(batch.range, verdict)
    return Receipt(batch.key, batch.range, verdict, epoch, batch.attempts, counts, datetime.now(UTC))


def a_policy(random: Random) -> DeliveryPolicy:
    """Return a random policy of a few, which together lead to every decision."""
    return random.choice(_POLICIES)


class Lanes:
    """The lanes of one process.

    :param random: decides what goes wrong
    """

    def __init__(self, sink: AbstractSink, random: Random) -> None:
        self._sink = sink
        self._random = random

    def claim(self, pipeline: str, batch: Batch, epoch: int) -> Outcome | None:
        """Claim what the batch's instruction says; None if the sink did not answer."""
        wanted = receipt_for(batch, epoch, VERDICTS[batch.instruction])
        try:
            receipt, found = self._sink.claim(pipeline, wanted)
        except FencedError:
            return Outcome(batch.key, batch.attempts, AttemptOutcome.FENCED)
        except DBAPIError:
            return None
        dead_letters = (
            {ErrorType.PROCESSING.value: receipt.counts.dead_lettered // 2} if receipt.counts.dead_lettered else {}
        )
        outcome = AttemptOutcome(receipt.verdict.value)
        return Outcome(batch.key, batch.attempts, outcome, receipt, receipt_existed=found, dead_letters=dead_letters)

    def attempt(self, pipeline: str, batch: Batch, epoch: int) -> Outcome | None:
        """Make one attempt, and return the outcome that the lane reports; None if it reports none."""
        dice = self._random.random()
        if dice < 0.70:
            return self.claim(pipeline, batch, epoch)
        if dice < 0.76:
            self.claim(pipeline, batch, epoch)
            return None if dice < 0.73 else self._failed(batch)
        if dice < 0.88:
            return self._failed(batch)
        if dice < 0.92:
            return Outcome(batch.key, batch.attempts, AttemptOutcome.NOT_ATTEMPTED)
        if dice < 0.95:
            return Outcome(batch.key, batch.attempts, self._random.choice(_BACK))
        return None

    def reports(self, pipeline: str, batches: Sequence[Batch], epoch: int) -> list[Outcome]:
        """Return the lanes' reports of a wave: some twice, some of an attempt that is not the open one."""
        found = [self.attempt(pipeline, batch, epoch) for batch in batches]
        outcomes = [outcome for outcome in found if outcome is not None]
        for outcome in list(outcomes):
            if self._random.random() < 0.05:
                outcomes.append(outcome)
            if outcome.receipt is None and self._random.random() < 0.05:
                outcomes.insert(0, replace(outcome, attempt=outcome.attempt + 1))
        return outcomes

    def _failed(self, batch: Batch) -> Outcome:
        error = self._random.choice(_ERRORS)
        return Outcome(batch.key, batch.attempts, AttemptOutcome.FAILED, error=error)
