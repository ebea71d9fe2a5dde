"""Apply a pipeline's ``error_policy`` to the errors of single records: skip the record, or fail its whole batch.

A record whose error ``error_policy`` does not mention becomes a dead letter.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import CkptError, ErrorAction, ErrorInfo

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.batch_content import DeadLetter
    from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
    from airflow_provider_ckpt.core.wave_messages import BatchTask

log = logging.getLogger(__name__)


class RecordError(CkptError):
    """Error of one record that fails its whole batch: ``error_policy`` maps the error's type to ``halt`` or ``retry``.

    :param position: source position of the record
    :param info: error of the record
    """

    def __init__(self, position: int, info: ErrorInfo) -> None:
        super().__init__(info.message, position=position)
        self._info = info

    @property
    def info(self) -> ErrorInfo:
        """The record's error, with its position in the message."""
        return replace(self._info, message=f"position {self.position}: {self._info.message}")


def without_skipped(dead_letters: list[DeadLetter], task: BatchTask, policy: DeliveryPolicy) -> list[DeadLetter]:
    """Remove the dead letters whose error type ``error_policy`` maps to ``skip_and_log``, and return the others.

    The number of removed dead letters and the first one are logged.

    :param dead_letters: dead letters of the batch
    :param task: the batch
    :param policy: the pipeline's delivery policy, with its ``error_policy``
    :raises RecordError: if ``error_policy`` maps the type of one of the errors to ``halt`` or, before the last attempt,
        to ``retry``
    """
    if not policy.overrides:
        return dead_letters
    skipped = skipped_indexes([(dead_letter.position, dead_letter.error) for dead_letter in dead_letters], task, policy)
    return [dead_letter for at, dead_letter in enumerate(dead_letters) if at not in skipped]


def skipped_indexes(errors: Sequence[tuple[int, ErrorInfo]], task: BatchTask, policy: DeliveryPolicy) -> set[int]:
    """Return the indexes in ``errors`` of the records that ``error_policy`` skips.

    The number of these records and the first one are logged.

    :param errors: source position and error of each record
    :param task: the batch
    :param policy: the pipeline's delivery policy, with its ``error_policy``
    :raises RecordError: if ``error_policy`` maps the type of one of the errors to ``halt`` or, before the last attempt,
        to ``retry``
    """
    skipped = set()
    for at, (position, error) in enumerate(errors if policy.overrides else ()):
        action = policy.record_action(error, is_last_attempt=task.is_last_attempt)
        if action is ErrorAction.SKIP_AND_LOG:
            skipped.add(at)
        elif action is not ErrorAction.DEAD_LETTER and error.type in policy.overrides:
            raise RecordError(position, error)
    if skipped:
        position, error = errors[min(skipped)]
        log.warning(
            "%s: %d records are skipped by error_policy; the first is at position %d: [%s] %s",
            *(task.key, len(skipped), position, error.type.value, error.message),
        )
    return skipped
