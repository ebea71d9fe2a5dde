"""Define the interface to the storage of a files source: a local or mounted file system, or an object store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import BinaryIO

from airflow_provider_ckpt.connectors.files.discovery import Discovery
from airflow_provider_ckpt.connectors.outputs import WrittenFiles
from airflow_provider_ckpt.connectors.source_plan import SourceFile
from airflow_provider_ckpt.core.errors import CkptError


class SourceStorage(ABC):
    """Storage of the files of a files source, which are named by their absolute paths or URLs.

    A recorded file is identified by its etag, which changes when the file is modified or replaced.
    """

    @property
    @abstractmethod
    def root(self) -> str:
        """The directory, pattern or file that the source names, resolved; it is the identity of the source."""

    @property
    @abstractmethod
    def remote(self) -> bool:
        """True if each access to a file is a request to a server, so that planning avoids unnecessary accesses."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the directory, or a pattern's deepest parent without wildcards, is missing or unreadable.

        :raises SourceError: naming the path and the problem
        :raises ConfigError: if the pattern is malformed
        """

    @abstractmethod
    def discover(self, known: Sequence[SourceFile], *, delivered: int = 0, look_again: bool = True) -> Discovery:
        """List the files and compare them with those that were discovered before.

        :param known: all files discovered before, in order
        :param delivered: end of the delivered positions: all positions before it have a verdict. Of the known
            files, ``gone`` and ``refused`` mention only those that end at or before it
        :param look_again: whether to check known files, too; if not, ``gone`` and ``refused`` do not mention them
        :return: the new, missing and refused files
        :raises SourceError: if the directory is missing or unreadable
        """

    @abstractmethod
    def open(self, path: str, etag: str, *, checked: bool = False) -> BinaryIO:
        """Open a recorded file for reading, and verify that it is unchanged.

        :param path: the file
        :param etag: recorded identity of the file
        :param checked: whether the file was verified a moment ago; then a storage whose reads verify the file need not
            do so here
        :raises SourceError: if the file has changed, is missing or may not be read
        :raises IoError: if the storage fails
        """

    @abstractmethod
    def verify(self, path: str, etag: str, file: BinaryIO | None = None) -> None:
        """Raise an error if a file was modified or replaced while it was read.

        :param path: the file
        :param etag: recorded identity of the file
        :param file: the open file; None to check the file that has this name now
        :raises SourceError: if the file has another identity than recorded; it names both
        """

    @abstractmethod
    def is_unchanged(self, path: str, etag: str) -> bool:
        """Return whether a file exists and has its recorded identity.

        :param path: the file
        :param etag: recorded identity of the file
        """

    @abstractmethod
    def read_error(self, path: str, etag: str, error: OSError) -> CkptError:
        """Return the exception for a recorded file that cannot be opened or read; the caller raises it.

        It is a :class:`SourceError` if a local file is missing or may not be read, and an :class:`IoError` for any
        other failure.

        :param path: the file
        :param etag: recorded identity of the file
        :param error: the operating system's error
        """

    @abstractmethod
    def contains(self, output: WrittenFiles) -> bool:
        """Return whether the source's directory or pattern matches files that a sink writes.

        :param output: the files that the sink writes
        """
