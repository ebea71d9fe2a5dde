"""Create the error with which a run halts, because a user must act, or because the sink or source as a whole failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.wave_messages import Outcome
    from airflow_provider_ckpt.replication.run.run import Run

AT_MOST_ONCE_HINT = "At most once: what was being sent counts as sent. Remove the cause and run again for what follows."
_NOTHING_LOST = "Nothing was lost: the checkpoint stays before this batch. Remove the cause and run again."


class HaltError(CkptError):
    """Error with which a run halts, because a user must act, or because the sink or source as a whole failed."""


def halt_error(run: Run, error: ErrorInfo, outcomes: Sequence[Outcome]) -> HaltError:
    """Return the error with which a run halts, and record its cause in the run's summary.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param error: the error of a batch that is the cause
    :param outcomes: outcomes of the wave, to find the batch that has the error
    """
    cause = next((outcome for outcome in outcomes if outcome.error == error), None)
    run.summary.halted = error
    halt = HaltError(
        error.message,
        pipeline=run.pipeline.name,
        batch=str(cause.key) if cause else None,
        hint=AT_MOST_ONCE_HINT if run.pipeline.delivery == "at_most_once" else _NOTHING_LOST,
        sqlstate=error.sqlstate,
        recoverable=error.recoverable,
        is_outage=error.is_outage,
    )
    halt.type = error.type
    return halt
