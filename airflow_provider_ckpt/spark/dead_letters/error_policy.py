"""What a pipeline's ``error_policy`` says of single records: another action than a dead letter."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import Action, CkptError, ErrorInfo

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.batch_content import DeadLetter
    from airflow_provider_ckpt.core.policy import Policy
    from airflow_provider_ckpt.core.wave import BatchTask

log = logging.getLogger(__name__)


class RecordError(CkptError):
    """A record's error fails its batch, since the pipeline says so."""

    def __init__(self, position: int, info: ErrorInfo) -> None:
        super().__init__(info.message, position=position)
        self._info = info

    @property
    def info(self) -> ErrorInfo:
        """The record's error, which says where it is."""
        return replace(self._info, message=f"position {self.position}: {self._info.message}")


class SkippedError(CkptError):
    """The sink found bad records that the pipeline skips; the batch is tried again without them."""


def letters_left(letters: list[DeadLetter], task: BatchTask, policy: Policy) -> list[DeadLetter]:
    """The letters that remain letters; the others are skipped.

    :raises RecordError: if an error among them is to fail the batch
    """
    if not policy.overrides:
        return letters
    skipped = skips([(letter.position, letter.error) for letter in letters], task, policy)
    return [letter for at, letter in enumerate(letters) if at not in skipped]


def skips(errors: Sequence[tuple[int, ErrorInfo]], task: BatchTask, policy: Policy) -> set[int]:
    """Indexes of the records that are skipped; the log names the first.

    :param errors: position and error of each
    :raises RecordError: if an error among them is to fail the batch
    """
    skipped = set()
    for at, (position, error) in enumerate(errors if policy.overrides else ()):
        action = policy.record(error, last=task.last)
        if action is Action.SKIP_AND_LOG:
            skipped.add(at)
        elif action is not Action.DEAD_LETTER and error.type in policy.overrides:
            raise RecordError(position, error)
    if skipped:
        position, error = errors[min(skipped)]
        log.warning(
            "%s: %d records are skipped, as error_policy says; the first, position %d: [%s] %s",
            *(task.key, len(skipped), position, error.type.value, error.message),
        )
    return skipped
