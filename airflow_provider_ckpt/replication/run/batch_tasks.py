"""Build the task of each batch of a wave, as a lane receives it, and find batches that the source can no longer read.

A batch whose records have expired or whose file has changed is not sent, and neither are later batches of its partition
in a pinned pipeline. All other batches are sent; at its end, the run fails with the error of the unreadable batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.replication.run.replays import add_dead_letters

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)


class TaskBuilder:
    """Builder of the :class:`BatchTask` of each batch of a wave, for one :class:`Run`.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :ivar refused: batches that the source cannot read, each with the error; this run does not attempt them again
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.refused: dict[BatchKey, SourceError] = {}

    def tasks(self, chosen: Sequence[Batch]) -> list[BatchTask]:
        """Return the tasks for the next attempts of batches; batches that the source cannot read are left out.

        :param chosen: the batches, whose next attempt is about to begin
        :raises CkptError: if the source as a whole cannot be reached
        """
        schema = None if self._run.planning.schema is None else self._run.planning.schema.current.number
        tasks = [
            BatchTask(
                batch.key,
                batch.range,
                batch.attempts + 1,
                batch.instruction,
                self._run.bounds.get(batch.key.partition),
                error=batch.error,
                finished=batch.finished,
                is_last_attempt=self._run.pipeline.policy.is_last_attempt(batch),
                schema=schema,
            )
            for batch in chosen
        ]
        of_source = [task for task in tasks if not task.key.is_replay]
        return [
            *self._locate(of_source),
            *add_dead_letters(self._run, [task for task in tasks if task.key.is_replay]),
        ]

    def finish(self) -> None:
        """Raise an error at the end of the run if the source could not read a batch.

        :raises SourceError: the error of the first such batch
        """
        for error in self.refused.values():
            raise error

    def _locate(self, tasks: Sequence[BatchTask]) -> Sequence[BatchTask]:
        """Return the tasks with the details by which the source's readers find the records, such as files.

        Tasks of batches that the source cannot read are left out, and the batches are added to ``refused``.

        :param tasks: tasks of batches of the source
        :raises SourceError: if the source as a whole cannot be read
        """
        pipeline, ranges = self._run.pipeline, [task.range for task in tasks]
        files = self._run.ledger.files(pipeline.name, ranges) if pipeline.source.discovers_files else []
        while tasks:
            try:
                return self._run.source.locate(tasks, files)
            except SourceError as error:
                refused_key = next((task.key for task in tasks if str(task.key) == error.batch), None)
                if refused_key is None:
                    raise
                log.error("%s continues without the batches that need this: %s", self._run.pipeline.name, error)
                self.refused[refused_key] = error
                tasks = [task for task in tasks if not self._is_blocked(task.key, refused_key)]
        return []

    def _is_blocked(self, key: BatchKey, refused_key: BatchKey) -> bool:
        """Return whether a batch cannot be sent, since it is the refused batch or must not overtake it.

        In a pinned pipeline, all later batches of the refused batch's partition must not overtake it.

        :param key: the batch
        :param refused_key: the refused batch
        """
        if self._run.pipeline.pinned:
            return key.partition == refused_key.partition and key.seq >= refused_key.seq
        return key == refused_key
