"""The retry policy: number and delay of a batch's attempts, and what follows the last one (semantics, section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class OnExhausted(StrEnum):
    """Reaction to a batch whose attempts are used up in every round: dead-letter or hold the batch, or fail the run."""

    DLQ = "dlq"
    HOLD = "hold"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number and delay of retries of a failed batch.

    :param max_attempts: attempts in a round, including the first one
    :param initial_delay_ms: delay before the second attempt
    :param max_delay_ms: upper bound of the delay, before jitter
    :param multiplier: factor from one delay to the next
    :param jitter: largest relative deviation; 0.1 means ±10 %
    :param rounds: number of rounds: the first submission and the later passes
    :param on_exhausted: reaction when all rounds are used up
    """

    max_attempts: int = 3
    initial_delay_ms: int = 100
    max_delay_ms: int = 30_000
    multiplier: float = 2.0
    jitter: float = 0.1
    rounds: int = 3
    on_exhausted: OnExhausted = OnExhausted.DLQ

    def delay(self, finished: int, deviation: float) -> timedelta:
        """Return the delay before the next attempt.

        :param finished: number of attempts of the batch that failed so far, including the one just failed
        :param deviation: a random number in [-1, 1] that determines the jitter
        """
        raw = min(self.initial_delay_ms * self.multiplier ** min(finished - 1, 64), float(self.max_delay_ms))
        return timedelta(milliseconds=raw * (1 + self.jitter * deviation))
