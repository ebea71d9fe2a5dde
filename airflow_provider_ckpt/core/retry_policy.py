"""Define the retry policy: number and delay of a batch's attempts, and the reaction to an error of a single record.

``failed_attempt.py`` decides what happens to a batch whose attempt failed. The functions are pure: a random number is
an argument, so every delay can be reproduced (semantics, section 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.error_policy import choose_action, default_action
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.on_exhausted import OnExhausted


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number and delay of the attempts of a batch.

    :param max_attempts: attempts in a round, including the first one
    :param initial_delay_ms: delay before the second attempt, in milliseconds
    :param max_delay_ms: upper bound of the delay, before jitter, in milliseconds
    :param multiplier: factor from one delay to the next
    :param jitter: largest relative deviation; 0.1 means ±10 %
    :param rounds: number of rounds; the first submission of the batches is the first round
    :param on_exhausted: reaction when all rounds are used up: store the records as dead letters, hold the
        batch, or fail the run
    """

    max_attempts: int = 3
    initial_delay_ms: int = 100
    max_delay_ms: int = 30_000
    multiplier: float = 2.0
    jitter: float = 0.1
    rounds: int = 3
    on_exhausted: OnExhausted = OnExhausted.DLQ

    def delay(self, finished: int, deviation: float) -> timedelta:
        """Return the time to wait before the next attempt: exponential up to a maximum, plus or minus jitter.

        :param finished: number of failed attempts of the batch so far, including the last one
        :param deviation: a random number in [-1, 1] that determines the jitter
        """
        raw = min(self.initial_delay_ms * self.multiplier ** min(finished - 1, 64), float(self.max_delay_ms))
        return timedelta(milliseconds=raw * (1 + self.jitter * deviation))


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Delivery policy of a pipeline: the reactions to errors of records and batches.

    :param retry: number and delay of the attempts of a batch
    :param dead_letters: whether dead letters are enabled; if not, an error that requires one halts the run
    :param overrides: actions that replace the default ones, by error type (``error_policy``)
    """

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letters: bool = True
    overrides: Mapping[ErrorType, ErrorAction] = field(default_factory=dict)

    def action(self, error: ErrorInfo) -> ErrorAction:
        """Return the action for an error: retry, dead-letter, skip or halt.

        See :func:`~airflow_provider_ckpt.core.error_policy.choose_action` for the rules.
        """
        return choose_action(error, self.overrides, dead_letters=self.dead_letters)

    def is_last_attempt(self, batch: Batch) -> bool:
        """Return whether a batch's open or next attempt is the last attempt of its last round.

        :param batch: the batch, planned or in flight
        """
        return batch.failures + 1 >= self.retry.max_attempts and batch.round >= self.retry.rounds

    def record_action(self, error: ErrorInfo, *, is_last_attempt: bool) -> ErrorAction:
        """Return the action for an error of a single record.

        An error that is retried fails the record's whole batch. In the last attempt, the record alone is dead-lettered
        instead, if ``on_exhausted`` is ``dlq`` and dead letters are enabled; if the default action for the error is to
        halt, the run halts.

        :param error: the record's error
        :param is_last_attempt: whether this is the batch's last attempt, see :meth:`is_last_attempt`
        """
        action = self.action(error)
        if (
            action is ErrorAction.RETRY
            and is_last_attempt
            and self.retry.on_exhausted is OnExhausted.DLQ
            and self.dead_letters
        ):
            return ErrorAction.DEAD_LETTER if default_action(error) is not ErrorAction.HALT else ErrorAction.HALT
        return action
