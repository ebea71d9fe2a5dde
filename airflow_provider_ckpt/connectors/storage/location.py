"""Define the interface to a file or directory in a file system, or to objects below a prefix in an object store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import IO


class Location(ABC):
    """A file or directory in a file system, or an object or prefix in an object store; it need not exist.

    All methods raise :class:`.IoError` if the file system or the object store fails. A file that :meth:`write` or
    :meth:`create` has written survives a power failure.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Last component of the path."""

    @property
    @abstractmethod
    def parent(self) -> Location:
        """The directory that contains this file or directory."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """Path or URL of the file or directory, in the form that the Delta and Iceberg libraries expect."""

    @property
    @abstractmethod
    def storage_options(self) -> Mapping[str, str] | None:
        """Options with which the Delta library opens the object store, including secrets; None for a local path."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the path or URL, for messages."""

    @abstractmethod
    def __truediv__(self, name: str) -> Location:
        """Return the location of a file or directory inside this directory.

        :param name: one or more path components, separated by ``/``
        """

    @abstractmethod
    def resolve(self, path: str) -> Location:
        """Return the location of a path or URL in the same file system or object store.

        :param path: an absolute path or a URL, or a path relative to this directory
        """

    def sibling(self, name: str) -> Location:
        """Return the location of another file or directory in the same directory.

        :param name: name of the other file or directory
        """
        return self.parent / name

    @abstractmethod
    def read(self) -> bytes | None:
        """Return the content of the file; None if there is no such file."""

    @abstractmethod
    def write(self, data: bytes, *, exclusive: bool = False) -> None:
        """Write a file durably and as a whole: after an error, the file has all of the content, or is as it was before.

        :param data: content of the file
        :param exclusive: whether to fail if the file exists, instead of replacing it
        :raises IoError: if the file exists and ``exclusive`` is set, or the file system or object store fails
        """

    @abstractmethod
    def create(self) -> AbstractContextManager[IO[bytes]]:
        """Open a new file for writing and reading, in a context.

        The file exists, as a whole, once the context ends without an error; after an error there is no file.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the file, if it exists."""

    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each file directly in this directory, by name; empty if it does not exist."""

    @abstractmethod
    def names(self) -> Iterator[str]:
        """Yield the names of the files and directories directly in this directory; none if it does not exist."""

    @abstractmethod
    def size(self) -> int | None:
        """Return the size of the file in bytes; None if there is no such file."""

    @abstractmethod
    def flush(self) -> None:
        """Flush to the disk a file that a library has written, and its directory; do nothing if the file is missing."""

    @abstractmethod
    def check_writable(self, key: str) -> None:
        """Raise an error if this user cannot create files in this directory, which need not exist yet.

        An object store must also support conditional requests, which do not replace an existing object, since receipts
        and fences depend on them.

        :param key: key of the pipeline's declaration that names the directory, for the message
        :raises ConfigError: naming the obstacle
        """
