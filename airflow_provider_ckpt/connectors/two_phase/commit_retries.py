"""Retry a commit that loses the race against other writers, with pauses, until the run's time budget is used up.

A commit loses the race if another writer commits first. Since the rows do not cause this, the error after the time
budget is an outage of the whole table, not a failed attempt of a batch.
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
_WARNING_INTERVAL = 30.0
"""Seconds between two warnings about lost races."""


class CommitRetries:
    """Retries of one commit, limited by the run's time budget instead of a number of tries.

    :param pipeline: the pipeline, with its time budget
    :param table: description of the table, for messages
    """

    def __init__(self, pipeline: Pipeline, table: str) -> None:
        self._pipeline = pipeline.name
        self._budget = pipeline.run.time_budget.total_seconds()
        self._table = table
        self._tries = 0
        self._succeeded = False
        self._began = self._logged = time.monotonic()

    def refuse_if_over(self) -> None:
        """Raise an error if no further try to commit is allowed; the first try is always allowed.

        No further try is allowed if the run's time budget is used up, or if the table reported that the last try
        succeeded. Call this method only after the newest version of the table was read and does not contain the commit.

        :raises SinkError: about the table as a whole, not about a batch
        """
        if self._succeeded:
            raise SinkError(
                f"{self._table} reported that a commit succeeded, but its newest version does not contain the commit.",
                pipeline=self._pipeline,
                is_outage=True,
                hint="Nothing more was sent, because a retry might add the rows twice. Find out whether the storage "
                "returned an old version, or whether somebody rolled the commit back at once; then run again.",
            )
        seconds = time.monotonic() - self._began
        if self._tries and seconds >= self._budget:
            raise SinkError(
                f"no commit to {self._table} succeeded for {seconds:.0f} s ({self._tries} tries), because other "
                "writers committed first each time.",
                pipeline=self._pipeline,
                recoverable=True,
                is_outage=True,
                hint="Nothing was lost. Run again when fewer other writers commit to the table, or raise "
                "run.time_budget.",
            )

    def count_try(self, *, succeeded: bool) -> None:
        """Count a try to commit; after a failed try, pause for a random time whose maximum grows up to 0.2 s.

        :param succeeded: whether the table reported that it created the next version
        """
        self._tries, self._succeeded = self._tries + 1, succeeded
        if succeeded:
            return
        now = time.monotonic()
        if now - self._logged >= _WARNING_INTERVAL:
            self._logged = now
            log.warning(
                "%s: no commit to %s has succeeded for %.0f s (%d tries), because other writers committed first each "
                "time; retrying",
                self._pipeline,
                self._table,
                now - self._began,
                self._tries,
            )
        longest = min(_FIRST_PAUSE * 2 ** min(self._tries, 16), _LONGEST_PAUSE)
        left = max(self._budget - (now - self._began), 0.0)
        time.sleep(min(random.uniform(0, longest), left))  # noqa: S311  # jitter, not a secret
