"""Define the decisions of the delivery policy about a batch whose attempt has failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RetryBatch:
    """Decision to plan the batch again for another attempt.

    :param not_before: earliest start of the next attempt, UTC
    :param next_round: whether this round's attempts are used up, so that the next attempt is in the next round
    """

    not_before: datetime
    next_round: bool = False


@dataclass(frozen=True, slots=True)
class RejectBatch:
    """Decision to store all records of the batch as dead letters: the next attempt claims the verdict ``rejected``."""


@dataclass(frozen=True, slots=True)
class SkipBatch:
    """Decision to skip the whole batch, as ``skip_and_log`` demands: the next attempt claims the verdict ``void``."""


@dataclass(frozen=True, slots=True)
class HoldBatch:
    """Decision to hold the batch until a user releases or skips it."""


@dataclass(frozen=True, slots=True)
class FailRun:
    """Decision to end the run as failed, as in an outage of source or sink, after which the next run tries again.

    The batch stays planned, and the failure is not counted against it.
    """


@dataclass(frozen=True, slots=True)
class HaltRun:
    """Decision to end the run as failed at once, because a retry cannot help until a user has intervened.

    The batch stays planned, and the failure is not counted against it.
    """


Decision = RetryBatch | RejectBatch | SkipBatch | HoldBatch | FailRun | HaltRun
