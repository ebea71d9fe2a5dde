"""Measure the time budget of a run, and let the run wait for a time, or for its turn to execute waves.

Actions that users request during a wait are applied at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import LedgerUnavailableError
from airflow_provider_ckpt.replication.setup import utcnow

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)

GRACE = 30.0
"""Seconds for which a wave may continue after the end of the time budget, to complete batches that it has begun."""

_POLL_SECONDS = 0.05
_ACTION_CHECK_SECONDS = 1.0
"""Seconds between two checks for stored actions."""


class TimeBudget:
    """Time budget of one :class:`Run`, which begins with the creation of this object, and the waits inside it.

    The seconds that the run used before it paused count against the budget.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param random_deviation: function that returns a random number in [-1, 1], by which delays of retries are spread
    """

    def __init__(self, run: Run, random_deviation: Callable[[], float]) -> None:
        self._run = run
        self._random_deviation = random_deviation
        self._budget = run.pipeline.run.time_budget.total_seconds()
        self._deadline = time.monotonic() + self._budget - run.setup.turn.seconds_used

    @property
    def is_overdue(self) -> bool:
        """True if the time budget and :data:`GRACE` are over, so that a wave which still runs must be cancelled."""
        return time.monotonic() > self._deadline + GRACE

    def is_most_of_budget(self, seconds: float) -> bool:
        """Return whether a duration is more than half of the budget."""
        return seconds > self._budget / 2

    @property
    def seconds_left(self) -> float:
        """Seconds left of the budget; 0 when it is over."""
        return max(self._deadline - time.monotonic(), 0.0)

    def must_pause(self, due: datetime | None) -> bool:
        """Return whether the run must pause, so that another run of this process can begin.

        :param due: time at which the run has something to do; None if it has now
        """
        left = self.seconds_left
        idle = 0.0 if due is None else min(max((due - utcnow()).total_seconds(), 0.0), left)
        return self._run.setup.turn.must_pause(self._budget - left, idle)

    def wait_until(self, moment: datetime, *, may_pause: bool = False) -> None:
        """Wait until a time, but not beyond the end of the budget; return early after applying a stored action.

        Meanwhile another run of this process may have the turn to execute waves.

        :param moment: the time
        :param may_pause: whether to return early if the run must pause
        :raises StaleEpochError: if the lease was lost
        """

        def is_over() -> bool:
            left = min((moment - utcnow()).total_seconds(), self.seconds_left)
            if left > 0:
                self._run.setup.turn.leave()
                if may_pause and self.must_pause(moment):
                    return True
                time.sleep(min(left, _POLL_SECONDS))
            return left <= 0

        self._wait(is_over)

    def wait_for_turn(self) -> bool:
        """Wait until the run has its turn to execute waves, and return True; return False after applying an action.

        The wait does not count against the budget. It ends early if a user's stored action was applied meanwhile, since
        other batches may be due after that.

        :raises StaleEpochError: if the lease was lost
        """
        turn = self._run.setup.turn
        if turn.take(0):
            return True
        started = time.monotonic()
        with self._run.step("turn"):
            found = self._wait(lambda: turn.take(_POLL_SECONDS))
        self._deadline += time.monotonic() - started
        return found

    def _wait(self, is_over: Callable[[], bool]) -> bool:
        """Wait until a condition is true, and return True; return False after applying a stored action before that.

        :param is_over: the condition, whose evaluation takes up to :data:`_POLL_SECONDS` if it is false
        :raises StaleEpochError: if the lease was lost
        """
        next_check_at = time.monotonic() + _ACTION_CHECK_SECONDS
        while not is_over():
            self._run.check()
            if time.monotonic() >= next_check_at:
                next_check_at += _ACTION_CHECK_SECONDS
                with suppress(LedgerUnavailableError):  # the caller asks again after the wait
                    if self._run.apply_stored_actions():
                        return False
        return True

    def wait_after_attempt(self, tried: int, reason: str) -> None:
        """Log a failure that concerns the whole source, sink or ledger, and wait as long as the retry policy says.

        :param tried: number of attempts so far
        :param reason: the failure, for the log
        """
        delay = self._run.pipeline.policy.retry.delay(tried, self._random_deviation())
        log.warning("%s: %s; trying again in %.1f s", self._run.pipeline.name, reason, delay.total_seconds())
        self.wait_until(utcnow() + delay)
