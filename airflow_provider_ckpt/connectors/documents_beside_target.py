"""Keep a sink's dead letters, replays and lists of source files in files beside its target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.dead_letter_files import DeadLetterFiles, ReplayFiles
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.stored_file_lists import StoredFileLists
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.replay_content import Replay


class DocumentsLayout(Protocol):
    """Interface to the stored dead letters, replays and lists of source files of one pipeline."""

    @property
    def dead_letters(self) -> DeadLetterFiles:
        """The dead letter files of the pipeline."""

    @property
    def replays(self) -> ReplayFiles:
        """The stored replays: lists of the dead letters that side partitions send again."""

    @property
    def lists(self) -> StoredFileLists:
        """The stored lists of discovered source files."""


class DocumentsBesideTarget:
    """Base class of sinks that keep dead letters, replays and file lists in files beside the target.

    It implements the methods of :class:`~.sink_protocol.Sink` that read and write these files.

    :param documents: object that reads and writes these files
    """

    def __init__(self, documents: DocumentsLayout) -> None:
        self._documents = documents

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts from the file of each attempt; see :meth:`Sink.dead_letters`."""
        for source in sources:
            yield from self._documents.dead_letters.read(source)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store the list of dead letters that a side partition sends again; see :meth:`Sink.store_replay`."""
        self._documents.replays.write(partition, replay)

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the stored replays of the given side partitions; see :meth:`Sink.replays`."""
        return self._documents.replays.read(partitions)

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered source files; see :meth:`Sink.store_file_list`."""
        self._documents.lists.write(files)

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists whose first file has at least the given ordinal; see :meth:`Sink.stored_file_lists`.

        :param first: the ordinal
        """
        return self._documents.lists.read(first)
