"""The delivery policy as decisions: given an error and what a batch has been through, what happens next.

Pure: the time and a random number come in as arguments, so that every decision can be replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from airflow_provider_ckpt.core.batch import Batch, Instruction
from airflow_provider_ckpt.core.errors import Action, ErrorInfo, ErrorType, default_action

_HALT_AT_LAST = frozenset({ErrorType.OFFSET_COMMIT, ErrorType.LEDGER_UNAVAILABLE})
"""Retried like others, but never given up for the next batch: they are not about the batch."""


class OnExhausted(StrEnum):
    """What becomes of a batch whose attempts are used up in every round."""

    DLQ = "dlq"
    HOLD = "hold"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed batch is tried again.

    :param max_attempts: in all, the first included, inside a round
    :param initial_delay_ms: delay before the second attempt
    :param max_delay_ms: no delay is longer, before jitter
    :param multiplier: growth from one delay to the next
    :param jitter: largest relative deviation, so 0.1 is ±10 %
    :param rounds: the first submission and the later passes
    """

    max_attempts: int = 3
    initial_delay_ms: int = 100
    max_delay_ms: int = 30_000
    multiplier: float = 2.0
    jitter: float = 0.1
    rounds: int = 3
    on_exhausted: OnExhausted = OnExhausted.DLQ

    def delay(self, finished: int, unit: float) -> timedelta:
        """The delay after ``finished`` attempts.

        :param finished: attempts that have ended, from 1
        :param unit: a random number in [-1, 1] that picks the jitter
        """
        raw = min(self.initial_delay_ms * self.multiplier ** min(finished - 1, 64), float(self.max_delay_ms))
        return timedelta(milliseconds=raw * (1 + self.jitter * unit))


@dataclass(frozen=True, slots=True)
class Policy:
    """What the core needs of a pipeline's delivery policy."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letters: bool = True
    overrides: Mapping[ErrorType, Action] = field(default_factory=dict)

    def action(self, error: ErrorInfo) -> Action:
        """What follows from an error here; an override never turns a halt into a drop."""
        default = default_action(error)
        chosen = self.overrides.get(error.type, default)
        if default is Action.HALT and chosen in (Action.SKIP_AND_LOG, Action.DEAD_LETTER):
            chosen = Action.HALT
        if chosen is Action.DEAD_LETTER and not self.dead_letters:
            return Action.HALT
        return chosen

    def last(self, batch: Batch) -> bool:
        """Whether a batch's attempts are used up once the next one, or the open one, has failed."""
        return batch.failures + 1 >= self.retry.max_attempts and batch.round >= self.retry.rounds

    def record(self, error: ErrorInfo, *, last: bool) -> Action:
        """What follows from an error of one record, found when its batch was tried.

        One that is to be retried fails its batch, until the attempts are used up; then it costs itself again.

        :param last: see :meth:`last`
        """
        action = self.action(error)
        if action is Action.RETRY and last and self.retry.on_exhausted is OnExhausted.DLQ and self.dead_letters:
            return Action.DEAD_LETTER if default_action(error) is not Action.HALT else Action.HALT
        return action


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again, not before a time; ``next_round`` leaves it to the next pass."""

    not_before: datetime
    next_round: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """Claim the verdict ``rejected``: the whole batch goes to the dead letters."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Claim the verdict ``void``: the pipeline lets such errors go."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Put the batch aside for a person."""


@dataclass(frozen=True, slots=True)
class FailRun:
    """End the run as failed; the batch stays planned and nothing is counted against it."""


@dataclass(frozen=True, slots=True)
class Halt:
    """End the run as failed at once; trying again cannot help until a person has acted."""


Decision = Retry | Reject | Drop | Hold | FailRun | Halt


def decide(batch: Batch, error: ErrorInfo, policy: Policy, *, now: datetime, unit: float) -> Decision:
    """What happens to a batch whose lane reported a failure (semantics, section 7).

    To skip is for records. A batch that fails by an error of a record that nobody could tell is rejected instead, so
    that the others in it are not lost.

    An error that halts by default, and that the pipeline has retried instead, halts when its attempts are used up: an
    override never ends in a drop. A batch that is given up already cannot be given up further: when claiming its
    verdict fails for good, the run halts.

    :param batch: as it stood while the attempt was open; its counters do not yet include this failure
    :param unit: a random number in [-1, 1] for the jitter
    """
    action = policy.action(error)
    if action is Action.HALT:
        return FailRun() if error.whole else Halt()
    if error.whole:
        return FailRun()
    give_up = Reject() if batch.instruction is Instruction.DELIVER else Halt()
    about_records = default_action(error) is Action.DEAD_LETTER
    if action is Action.SKIP_AND_LOG and not about_records:
        return Drop() if batch.instruction is Instruction.DELIVER else Halt()
    if action in (Action.DEAD_LETTER, Action.SKIP_AND_LOG):
        return give_up if policy.dead_letters else Halt()
    retry = policy.retry
    not_before = now + retry.delay(batch.finished + 1, unit)
    if not policy.last(batch):
        return Retry(not_before, next_round=batch.failures + 1 >= retry.max_attempts)
    if error.type in _HALT_AT_LAST or default_action(error) is Action.HALT:
        return Halt()
    if retry.on_exhausted is OnExhausted.HOLD:
        return Hold()
    if retry.on_exhausted is OnExhausted.DLQ and policy.dead_letters:
        return give_up
    return FailRun()


class Route(StrEnum):
    """Where a settled run leads."""

    RETRY = "retry"
    DEAD_LETTERS = "dead_letters"
    HOLD = "hold"
    DONE = "done"


def route(*, dead_lettered: int, waiting: int, held: int) -> list[Route]:
    """The branches after a run is settled.

    :param dead_lettered: records that this run dead-lettered
    :param waiting: batches that wait for another round
    :param held: batches that are held
    """
    chosen = [Route.DEAD_LETTERS] if dead_lettered else []
    if waiting:
        chosen.append(Route.RETRY)
    if held:
        chosen.append(Route.HOLD)
    return chosen if waiting or held else [*chosen, Route.DONE]
