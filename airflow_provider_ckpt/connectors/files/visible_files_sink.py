"""Base class of the files sinks in a file system and in an object store: methods for their visible files.

Visible files are those with delivered rows; staged files are hidden.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import IO, Protocol

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.documents_beside_target import DocumentsBesideTarget, DocumentsLayout
from airflow_provider_ckpt.connectors.files.formats import count_rows, refuse_types
from airflow_provider_ckpt.connectors.files.layout import DATA_PREFIX
from airflow_provider_ckpt.connectors.outputs import Output, WrittenFiles
from airflow_provider_ckpt.connectors.storage.filesystem import io_error
from airflow_provider_ckpt.connectors.storage.location import Location


class VisibleFilesLayout(DocumentsLayout, Protocol):
    """Interface of an object that knows the paths and the format of a files sink."""

    @property
    def format(self) -> str:
        """Format of the visible files, which is also the extension of their names."""

    @property
    def files_may_go(self) -> bool:
        """``sink.files_may_go``: whether readers may remove visible files."""


class VisibleFilesSink(DocumentsBesideTarget, ABC):
    """The methods of a :class:`~.sink_protocol.Sink` that concern its visible files and its dead letter files.

    :param pipeline: the pipeline's declaration
    :param layout: paths and format of the sink
    :param place: directory or prefix of the visible files
    """

    exactly_once = True

    def __init__(self, pipeline: Pipeline, layout: VisibleFilesLayout, place: Location) -> None:
        super().__init__(layout)
        self._files = layout
        self._place = place
        self._dead_letters_in_sink = pipeline.dead_letter_queue.in_sink

    def create_bookkeeping(self) -> None:
        """Do nothing: the first fence creates the bookkeeping files; see :meth:`Sink.create_bookkeeping`."""

    def outputs(self) -> Sequence[Output]:
        """Return descriptions of the visible files and the dead letter files; see :class:`NamesOutputs`.

        The caller compares them with the source's files, and refuses a source that would read them.
        """
        rows = WrittenFiles("sink.path", self._place, DATA_PREFIX, f".{self._files.format}")
        if not self._dead_letters_in_sink:
            return [rows]
        return [rows, self._files.dead_letters.output("dead_letter_queue.sink: same")]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise an error if the format does not support a column's type; see :meth:`Sink.check_columns`.

        :param columns: name and Spark SQL type of each column
        :raises ConfigError: naming the columns
        """
        refuse_types(columns, self._files.format)

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of rows in all visible files, including those of other pipelines there.

        :param exact: whether to read every file; if False, the result is None
        :return: None also if ``sink.files_may_go`` is set, since readers may have removed files
        :raises IoError: if the file system or object store fails
        """
        if not exact or self._files.files_may_go:
            return None
        form = self._files.format
        rows = 0
        try:
            for name in self._place.names():
                if name.startswith(DATA_PREFIX) and name.endswith(f".{form}"):
                    with self._open_file(name) as file:
                        rows += count_rows(file, form)
        except OSError as error:
            raise io_error(error, f"count the rows in {self._place}") from error
        return rows

    def close(self) -> None:
        """Do nothing: no file or connection is held open."""

    @abstractmethod
    def _open_file(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a visible file for reading.

        :param name: name of the file
        :raises OSError: if a file system fails
        """
