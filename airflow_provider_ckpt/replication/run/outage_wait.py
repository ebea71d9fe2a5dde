"""Wait during an outage of the sink, the source or the ledger, and fail the run when it lasts too long.

Nothing else is decided here: that an outage uses up no attempt of a batch follows from ``core/retry_policy.py``. The
run waits as ``retry`` says for attempts, and fails after ``retry.max_attempts`` outages in a row.
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
    """Waits of one run during outages; counts how many came in a row.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param time_budget: the run's time budget, which ends a wait early
    """

    def __init__(self, run: Run, time_budget: TimeBudget) -> None:
        self._run = run
        self._time_budget = time_budget
        self._max_attempts = run.pipeline.retry.max_attempts
        self._outages = 0
        self._ledger_outages = 0

    def wait(self, error: ErrorInfo, outcomes: Sequence[Outcome]) -> None:
        """Wait after a wave that failed because of the sink or source as a whole.

        :param error: the error of a batch of the wave
        :param outcomes: outcomes of the wave
        :raises HaltError: if the error does not pass by itself, came too many times in a row, or the time budget ended
            during the wait. An exhausted batch for which ``retry.on_exhausted`` says ``fail`` halts the run too
        """
        self._outages += 1
        if not (error.is_outage and error.recoverable) or self._outages >= self._max_attempts:
            raise halt_error(self._run, error, outcomes)
        self._time_budget.wait_after_attempt(self._outages, error.message)
        if not self._time_budget.seconds_left:  # a run that ends during an outage must fail
            raise halt_error(self._run, error, outcomes)

    def wait_for_ledger(self, error: LedgerUnavailableError) -> None:
        """Wait after the ledger did not answer between two waves; the caller then reads its state again.

        The beginning of a wave is not retried: a wave that the ledger may have recorded as begun is safe only after the
        next run's fence.

        :param error: the ledger's error, which is raised again if it does not pass by itself or came too many times
        """
        self._ledger_outages += 1
        if not error.recoverable or self._ledger_outages >= self._max_attempts:
            raise error
        self._time_budget.wait_after_attempt(self._ledger_outages, error.message)

    def end(self) -> None:
        """Count outages of sink and source from 0 again, because a wave succeeded."""
        self._outages = 0

    def end_of_ledger(self) -> None:
        """Count outages of the ledger from 0 again, because the ledger answered."""
        self._ledger_outages = 0
