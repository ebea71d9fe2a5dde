"""Waiting inside a run: never beyond its time budget, and never deaf to what people ask for."""

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
"""Seconds that a wave may run on after the budget, for the batches that it has begun."""

_PAUSE = 0.05
_HEAR = 1.0
"""Seconds between two looks at what people ask for."""


class Waiting:
    """The time budget of one :class:`Run`, from now on, and the waits inside it.

    :param unit: gives a random number in [-1, 1] that spreads retries
    """

    def __init__(self, run: Run, unit: Callable[[], float]) -> None:
        self._run = run
        self._unit = unit
        self._budget = run.pipeline.run.time_budget.total_seconds()
        self._deadline = time.monotonic() + self._budget

    @property
    def overdue(self) -> bool:
        """Whether the budget was over so long ago that a wave which still runs has to be cancelled."""
        return time.monotonic() > self._deadline + GRACE

    def most_of_it(self, seconds: float) -> bool:
        """Whether a time is the greater part of the budget."""
        return seconds > self._budget / 2

    @property
    def left(self) -> float:
        """Seconds that are left of the budget; 0 when it is over."""
        return max(self._deadline - time.monotonic(), 0.0)

    def until(self, moment: datetime) -> None:
        """Wait for a moment, the end of the budget, or somebody who asks for something.

        :raises StaleEpochError: if the lease was lost
        """
        hear_at = time.monotonic() + _HEAR
        while (left := min((moment - utcnow()).total_seconds(), self.left)) > 0:
            self._run.check()
            if time.monotonic() >= hear_at:
                hear_at += _HEAR
                with suppress(LedgerUnavailableError):  # it is asked again after the wait
                    if self._run.apply_intents():
                        return
            time.sleep(min(left, _PAUSE))

    def after_attempt(self, tried: int, why: str) -> None:
        """Wait as the policy says after so many attempts at what is not about one batch.

        :param why: what went wrong, for the log
        """
        delay = self._run.pipeline.policy.retry.delay(tried, self._unit())
        log.warning("%s: %s; trying again in %.1f s", self._run.pipeline.name, why, delay.total_seconds())
        self.until(utcnow() + delay)
