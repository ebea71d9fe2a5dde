"""Store dead letters as JSON lines in files of a configured directory, for any sink; pipelines may share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_files import DeadLetterFiles
from airflow_provider_ckpt.connectors.outputs import Output
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.filesystem import escape
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


class _DeadLetterFilesInDirectory(DeadLetterFiles):
    """Dead letter files of a pipeline in the directory that ``dead_letter_queue.path`` names.

    The base class describes the dead letter files of a sink, which lie beside its target.
    """

    @property
    def directory(self) -> Location:
        """Directory with the pipeline's name; it contains the pipeline's dead letters of all ledgers."""
        return self.target / escape(self.pipeline)


class FilesDeadLetterStore:
    """Dead letter store in a directory or below a prefix of an object store.

    See :class:`~.dead_letter_store.DeadLetterStore`.

    :param pipeline: ``dead_letter_queue.path`` names the directory
    :param connection: the connection of the object store, or a connection with the directory to which a relative
        ``dead_letter_queue.path`` refers; None if neither is needed
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._path = open_location(pipeline.dead_letter_queue.path or "", "dead_letter_queue.path", connection)
        self._context = context
        self._files = _DeadLetterFilesInDirectory(self._path, context.ledger, context.pipeline)

    def check(self) -> None:
        """Raise an error if the directory cannot be created or written; see :meth:`DeadLetterStore.check`."""
        self._path.check_writable("dead_letter_queue.path")

    def outputs(self) -> Sequence[Output]:
        """Return the directory of the dead letter files as the only output of this store; see :class:`NamesOutputs`."""
        return [self._files.output("dead_letter_queue.path")]

    def store(self, task: BatchTask, dead_letters: Sequence[DeadLetter], first: int) -> None:  # noqa: ARG002  # all are written again
        """Write all dead letters of an attempt to its file, replacing the file; see :meth:`DeadLetterStore.store`.

        :param task: the batch and its attempt
        :param dead_letters: all dead letters of the attempt so far
        :param first: not used, since the file is written as a whole
        """
        self._files.write(task, self._context, dead_letters)

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the stored dead letters of the given attempts; see :meth:`DeadLetterStore.dead_letters`."""
        for source in sources:
            yield from self._files.read(source)

    def close(self) -> None:
        """Do nothing: no file is held open."""
