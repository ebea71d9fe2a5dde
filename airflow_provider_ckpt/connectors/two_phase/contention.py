"""Waits between commits when other writers are faster, for as long as a run may take.

A lost race says nothing of the rows: it is an outage of the table as a whole, and spends nobody's attempts.
"""

from __future__ import annotations

import logging
import random
import time

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import SinkError

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.2
_TELL_EVERY = 30.0
"""Seconds between two warnings that a table is never quiet."""


class Contention:
    """The tries of one commit, bounded by the run's time budget and not by their number.

    :param table: which table, for messages
    """

    def __init__(self, pipeline: Pipeline, table: str) -> None:
        self._pipeline = pipeline.name
        self._budget = pipeline.run.time_budget.total_seconds()
        self._table = table
        self._tries = 0
        self._worked = False
        self._began = self._told = time.monotonic()

    def refuse_if_over(self) -> None:
        """Fail if the time is over, never before the first try; or if the newest try was answered as done.

        :raises SinkError: of the table as a whole
        """
        if self._worked:
            raise SinkError(
                f"{self._table} answered that a commit was done, and does not show it.",
                pipeline=self._pipeline,
                whole=True,
                hint="Nothing more was sent: trying again might add the rows twice. Find out which of its answers is "
                "wrong, or whether somebody took the commit back at once; then run again.",
            )
        seconds = time.monotonic() - self._began
        if self._tries and seconds >= self._budget:
            raise SinkError(
                f"other writers took every version of {self._table} for {seconds:.0f} s ({self._tries} tries).",
                pipeline=self._pipeline,
                recoverable=True,
                whole=True,
                hint="Nothing was lost. Run again when the table is quieter, or raise run.time_budget.",
            )

    def tried(self, *, worked: bool) -> None:
        """Count a try, and wait a moment before the next, longer each time.

        :param worked: whether the table's answer says that it made the next version
        """
        self._tries, self._worked = self._tries + 1, worked
        if worked:
            return
        now = time.monotonic()
        if now - self._told >= _TELL_EVERY:
            self._told = now
            log.warning(
                "%s: other writers took every version of %s for %.0f s (%d tries); trying on",
                self._pipeline,
                self._table,
                now - self._began,
                self._tries,
            )
        longest = min(_FIRST_PAUSE * 2 ** min(self._tries, 16), _LONGEST_PAUSE)
        left = max(self._budget - (now - self._began), 0.0)
        time.sleep(min(random.uniform(0, longest), left))  # noqa: S311  # spreads tries, guards nothing
