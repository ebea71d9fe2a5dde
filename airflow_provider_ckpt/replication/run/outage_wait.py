"""Wait during an outage of the sink, the source or the ledger, and fail the run when the outage lasts too long.

The delays are those that ``retry`` declares for attempts; the run fails after ``retry.max_attempts`` outages in a row.
An outage uses up no attempt of a batch, as ``core/retry_policy.py`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorInfo, LedgerUnavailableError
from airflow_provider_ckpt.replication.run.halt import halt_error

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.wave_messages import Outcome
    from airflow_provider_ckpt.replication.run.run import Run
    from airflow_provider_ckpt.replication.run.time_budget import TimeBudget


class OutageWait:
    """Waits after each outage of one run, and counts the outages in a row, to fail the run after too many.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param time_budget: the run's time budget, which ends a wait early
    """

    def __init__(self, run: Run, time_budget: TimeBudget) -> None:
        self._run = run
        self._time_budget = time_budget
        self._max_attempts = run.pipeline.retry.max_attempts
        self._outages = 0
        self._ledger_outages = 0

    @property
    def in_outage(self) -> bool:
        """True if the newest wave ended with an outage of the sink or source."""
        return self._outages > 0

    def wait(self, error: ErrorInfo, outcomes: Sequence[Outcome]) -> None:
        """Wait after a wave that ended with an outage of the sink or source, or halt the run.

        :param error: the error because of which the run would fail: that of an outage, or that of a batch whose
            attempts are used up, with ``retry.on_exhausted: fail``
        :param outcomes: outcomes of the wave
        :raises HaltError: if the error is no outage or does not pass by itself, if this is outage number
            ``retry.max_attempts`` in a row, or if the time budget ended during the wait
        """
        self._outages += 1
        if not (error.is_outage and error.recoverable) or self._outages >= self._max_attempts:
            raise halt_error(self._run, error, outcomes)
        self._time_budget.wait_after_attempt(self._outages, error.message)
        if not self._time_budget.seconds_left:  # a run that ends during an outage must fail
            raise halt_error(self._run, error, outcomes)

    def wait_for_ledger(self, error: LedgerUnavailableError) -> None:
        """Wait after the ledger did not answer between two waves; the caller then reads the ledger again.

        The caller must not use this method if the ledger failed while the beginning of a wave was stored. The ledger
        may have stored open attempts then, and only the next run's fence makes it safe to end them.

        :param error: the ledger's error
        :raises LedgerUnavailableError: ``error`` itself, if it does not pass by itself or came too many times in a row
        """
        self._ledger_outages += 1
        if not error.recoverable or self._ledger_outages >= self._max_attempts:
            raise error
        self._time_budget.wait_after_attempt(self._ledger_outages, error.message)

    def end(self) -> None:
        """Reset the number of outages of sink and source in a row, because a wave ended without an outage."""
        self._outages = 0

    def end_of_ledger(self) -> None:
        """Reset the number of outages of the ledger in a row, because the ledger answered."""
        self._ledger_outages = 0
