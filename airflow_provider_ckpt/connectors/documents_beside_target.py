"""Keep documents of a sink as files beside its target: dead letters, replays, and lists of source files."""

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
    """Paths of a sink that keeps these files."""

    @property
    def dead_letters(self) -> DeadLetterFiles:
        """Dead letter files."""

    @property
    def replays(self) -> ReplayFiles:
        """Stored replays."""

    @property
    def lists(self) -> StoredFileLists:
        """Stored lists of source files."""


class DocumentsBesideTarget:
    """The part of a :class:`~.sink_protocol.Sink` that keeps these files.

    :param documents: paths of the sink
    """

    def __init__(self, documents: DocumentsLayout) -> None:
        self._documents = documents

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of some attempts from the file of each attempt; see :meth:`Sink.dead_letters`."""
        for source in sources:
            yield from self._documents.dead_letters.read(source)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store which dead letters a side partition sends; see :meth:`Sink.store_replay`."""
        self._documents.replays.write(partition, replay)

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the stored replays of some side partitions; see :meth:`Sink.replays`."""
        return self._documents.replays.read(partitions)

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered source files; see :meth:`Sink.store_file_list`."""
        self._documents.lists.write(files)

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists of source files from an ordinal on; see :meth:`Sink.stored_file_lists`."""
        return self._documents.lists.read(first)
