"""Decide what happens to a batch whose attempt failed: retry, reject, skip or hold it, or end the run.

In an outage of the source or sink as a whole, the run fails and the batch uses up no attempt (semantics, section 7).
The number of attempts is in ``retry_policy.py``, and the reaction when they are used up in ``on_exhausted.py``.

:func:`decide` is pure: the time and a random number are arguments, so every decision can be reproduced.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.batch import Batch, Instruction
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo
from airflow_provider_ckpt.core.failure_decisions import Decision, FailRun, HaltRun, RejectBatch, RetryBatch, SkipBatch
from airflow_provider_ckpt.core.on_exhausted import decide_exhausted

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy


def decide(batch: Batch, error: ErrorInfo, policy: DeliveryPolicy, *, now: datetime, deviation: float) -> Decision:
    """Decide what happens to a batch whose lane reported a failure (semantics, section 7).

    An outage of the source or sink as a whole fails the run, and the batch does not use up an attempt.

    ``skip_and_log`` applies to records. If a record that could not be identified fails its batch, the batch is rejected
    instead of skipped, so that its other records are kept as dead letters.

    An error that halts by default, but for which ``error_policy`` says ``retry``, halts the run when the attempts are
    used up: ``error_policy`` never makes a halt drop anything. If the failed attempt was to claim the verdict
    ``rejected`` or ``void``, the batch cannot be given up in another way, so the run halts when the attempts are used
    up.

    :param batch: the batch as it was while the attempt was open; its counters do not include this failure
    :param error: the error that the lane reported
    :param policy: the pipeline's delivery policy
    :param now: the current time, UTC
    :param deviation: a random number in [-1, 1] that determines the jitter
    :return: the decision; the caller carries it out
    """
    action = policy.action(error)
    if action is ErrorAction.HALT:
        return FailRun() if error.is_outage else HaltRun()
    if error.is_outage:
        return FailRun()
    give_up = RejectBatch() if batch.instruction is Instruction.DELIVER else HaltRun()
    about_records = default_action(error) is ErrorAction.DEAD_LETTER
    if action is ErrorAction.SKIP_AND_LOG and not about_records:
        return SkipBatch() if batch.instruction is Instruction.DELIVER else HaltRun()
    if action in (ErrorAction.DEAD_LETTER, ErrorAction.SKIP_AND_LOG):
        return give_up if policy.dead_letters else HaltRun()
    retry = policy.retry
    not_before = now + retry.delay(batch.finished + 1, deviation)
    if not policy.is_last_attempt(batch):
        return RetryBatch(not_before, next_round=batch.failures + 1 >= retry.max_attempts)
    return decide_exhausted(error, retry.on_exhausted, give_up, dead_letters=policy.dead_letters)
