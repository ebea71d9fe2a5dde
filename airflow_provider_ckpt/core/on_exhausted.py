"""Decide what happens to a batch whose attempts are used up in every round (semantics, section 7).

All of the batch's records become dead letters, the batch is held until a user decides, or the run fails, depending on
``retry.on_exhausted``. ``retry_policy.py`` decides which attempt is the last.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.failure_decisions import Decision, FailRun, HaltRun, HoldBatch, RejectBatch

_HALT_WHEN_EXHAUSTED = frozenset({ErrorType.OFFSET_COMMIT, ErrorType.LEDGER_UNAVAILABLE})
"""Types of errors that the batch does not cause; when its attempts are used up, they halt the run."""


class OnExhausted(StrEnum):
    """Reaction to a batch whose attempts are used up in every round.

    - ``dlq``: store all of its records as dead letters
    - ``hold``: hold the batch until a user decides
    - ``fail``: fail the run; the batch stays planned
    """

    DLQ = "dlq"
    HOLD = "hold"
    FAIL = "fail"


def decide_exhausted(
    error: ErrorInfo, on_exhausted: OnExhausted, give_up: RejectBatch | HaltRun, *, dead_letters: bool
) -> Decision:
    """Decide by ``retry.on_exhausted`` what happens to a batch whose last attempt has failed.

    An error type that halts the run by default may be retried because the declaration says so. After the last attempt
    it halts the run all the same, whatever ``on_exhausted`` says: a user who permits retries has not given up records.

    :param error: the error of the last attempt
    :param on_exhausted: the pipeline's ``retry.on_exhausted``: ``hold``, ``dlq`` or ``fail``
    :param give_up: the decision to return for ``dlq``: reject the batch, or halt the run if the last attempt was
        already to claim ``rejected`` or ``void``
    :param dead_letters: whether dead letters are enabled; if not, the run fails instead of storing any
    :return: the decision; the caller carries it out
    """
    if error.type in _HALT_WHEN_EXHAUSTED or default_action(error) is ErrorAction.HALT:
        return HaltRun()
    if on_exhausted is OnExhausted.HOLD:
        return HoldBatch()
    if on_exhausted is OnExhausted.DLQ and dead_letters:
        return give_up
    return FailRun()
