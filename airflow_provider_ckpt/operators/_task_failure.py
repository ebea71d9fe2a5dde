"""Convert an error of this package to the exception that makes Airflow retry the task, or fail it without a retry."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_ckpt.core.errors import CkptError, EngineError, LeaseBusyError, LedgerUnavailableError


class CkptTaskError(AirflowException):
    """Error of a task that may succeed when it is tried again; Airflow's ``retries`` apply to it."""


def airflow_error(error: CkptError) -> AirflowException:
    """Convert an error to the exception that a task raises.

    The exception is :class:`CkptTaskError` if another try may help, so that Airflow's ``retries`` apply. Otherwise, as
    for a stale epoch, it is ``AirflowFailException``, and the task fails without a retry.

    :param error: the error
    """
    may_succeed = (
        error.recoverable or error.is_outage or isinstance(error, LeaseBusyError | LedgerUnavailableError | EngineError)
    )
    return CkptTaskError(str(error)) if may_succeed else AirflowFailException(str(error))
