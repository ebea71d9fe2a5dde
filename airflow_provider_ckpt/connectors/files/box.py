"""Dead letters as JSON lines in a directory of their own, whatever the sink is; pipelines may share one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.content import DeadLetter, KeptLetter
from airflow_provider_ckpt.connectors.files.letters import LetterFiles
from airflow_provider_ckpt.connectors.files.local import escape, io_error, local_path, make_directory
from airflow_provider_ckpt.connectors.protocols import Connection, SinkContext
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.letters import AttemptKey
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


class _InDirectory(LetterFiles):
    """Letter files in the directory that was named, and not beside it."""

    @property
    def directory(self) -> Path:
        """The pipeline's dead letters, those of every ledger."""
        return self.target / escape(self.pipeline)


class FilesBox:
    """See :class:`~airflow_provider_ckpt.connectors.boxes.LetterBox`."""

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._path = local_path(pipeline.dead_letter_queue.path or "", "dead_letter_queue.path", connection)
        self._context = context
        self._files = _InDirectory(self._path, context.ledger, context.pipeline)

    def check(self) -> None:
        """See :meth:`LetterBox.check`."""
        try:
            make_directory(self._path)
        except OSError as error:
            raise ConfigError(
                f"dead_letter_queue.path: {io_error(error, f'make directory {self._path}').message}",
                pipeline=self._context.pipeline,
                hint="Correct dead_letter_queue.path, or let this user write there.",
            ) from error
        if not os.access(self._path, os.W_OK | os.X_OK):
            raise ConfigError(
                f"dead_letter_queue.path: {self._path} may not be written by this user.",
                pipeline=self._context.pipeline,
                hint="Grant write access to it.",
            )

    def keep(self, task: BatchTask, letters: Sequence[DeadLetter], first: int) -> None:  # noqa: ARG002  # all of it anew
        """See :meth:`LetterBox.keep`; an attempt's file is replaced by a longer one."""
        self._files.write_once(task, self._context, letters)

    def letters(self, sources: Iterable[AttemptKey]) -> Iterator[KeptLetter]:
        """See :meth:`LetterBox.letters`."""
        for source in sources:
            yield from self._files.read(source)

    def close(self) -> None:
        """Nothing is held open."""
