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
        self._began = self._told = time.monotonic()

    def refuse_if_over(self) -> None:
        """Fail if the time is over; never before the first try.

        :raises SinkError: of the table as a whole
        """
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

        :param worked: whether the table's answer says that it made the next version; where that proves wrong, it is
            tried again
        """
        self._tries += 1
        if worked and self._tries == 1:
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
