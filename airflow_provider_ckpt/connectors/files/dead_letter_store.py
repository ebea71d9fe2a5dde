"""Store dead letters as JSON lines in a separate directory, which several pipelines may share; works with any sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, KeptLetter
from airflow_provider_ckpt.connectors.local.dead_letters import LetterFiles
from airflow_provider_ckpt.connectors.local.filesystem import check_writable, escape, io_error, local_path
from airflow_provider_ckpt.connectors.outputs import Output
from airflow_provider_ckpt.connectors.protocols import Connection, SinkContext
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import DeadLetterQueueError
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


class _InDirectory(LetterFiles):
    """Dead letter files inside the configured directory, not beside it."""

    @property
    def directory(self) -> Path:
        """Directory of the pipeline's dead letters of all ledgers."""
        return self.target / escape(self.pipeline)


class FilesBox:
    """Dead letter store in a directory; see :class:`~.dead_letter_store.LetterBox`."""

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._path = local_path(pipeline.dead_letter_queue.path or "", "dead_letter_queue.path", connection)
        self._context = context
        self._files = _InDirectory(self._path, context.ledger, context.pipeline)

    def check(self) -> None:
        """See :meth:`LetterBox.check`."""
        check_writable(self._path, "dead_letter_queue.path")

    def outputs(self) -> Sequence[Output]:
        """See :class:`NamesOutputs`."""
        return [self._files.output("dead_letter_queue.path")]

    def keep(self, task: BatchTask, letters: Sequence[DeadLetter], first: int) -> None:  # noqa: ARG002  # all of it anew
        """See :meth:`LetterBox.keep`; an attempt's file is replaced by a longer one."""
        try:
            self._files.write(task, self._context, letters, retries=0)
        except DeadLetterQueueError as error:  # the caller counts the retries
            why = error.__cause__
            raise (
                io_error(why, f"store dead letters under {self._path}") if isinstance(why, OSError) else error
            ) from why

    def letters(self, sources: Iterable[AttemptKey]) -> Iterator[KeptLetter]:
        """See :meth:`LetterBox.letters`."""
        for source in sources:
            yield from self._files.read(source)

    def close(self) -> None:
        """Do nothing: no file is held open."""
