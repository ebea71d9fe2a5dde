"""Read, write and list files and directories of a local or mounted file system."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from airflow_provider_ckpt.connectors.storage import filesystem
from airflow_provider_ckpt.connectors.storage.filesystem import io_error
from airflow_provider_ckpt.connectors.storage.location import Location

_FILE_URL = re.compile(r"^file:(?://[^/]*)?")


@dataclass(frozen=True, slots=True)
class LocalLocation(Location):
    """A file or directory in a local or mounted file system; see :class:`.Location`.

    :param path: absolute path
    """

    path: Path

    @property
    def name(self) -> str:
        """Last component of the path."""
        return self.path.name

    @property
    def parent(self) -> LocalLocation:
        """The directory that contains this file or directory."""
        return LocalLocation(self.path.parent)

    @property
    def uri(self) -> str:
        """The path as it is, without a scheme such as ``file://``; see :attr:`.Location.uri`."""
        return str(self.path)

    @property
    def storage_options(self) -> None:
        """None, since a library opens a local path without options."""
        return

    def __str__(self) -> str:
        """Return the path, for messages."""
        return str(self.path)

    def __truediv__(self, name: str) -> LocalLocation:
        """Return the location of a file or directory inside this directory.

        :param name: one or more path components, separated by ``/``
        """
        return LocalLocation(self.path / name)

    def resolve(self, path: str) -> LocalLocation:
        """Return the location of an absolute path or ``file:`` URL, or of a path relative to this directory.

        :param path: the path or URL
        """
        return LocalLocation(self.path / _FILE_URL.sub("", path))

    def read(self) -> bytes | None:
        """Return the content of the file; None if there is no such file."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise io_error(error, f"read {self.path}") from error

    def write(self, data: bytes, *, exclusive: bool = False) -> None:
        """Write a file that only this user can read, and flush it to the disk; see :meth:`.Location.write`.

        :param data: content of the file
        :param exclusive: whether to fail if the file exists, instead of replacing it
        """
        try:
            filesystem.write_durably(self.path, data, exclusive=exclusive)
        except OSError as error:
            raise io_error(error, f"write {self.path}") from error

    @contextmanager
    def create(self) -> Iterator[IO[bytes]]:
        """Open a new file for writing; at the end of the context, the file is flushed to the disk.

        If the context ends with an error, the file is removed. See :meth:`.Location.create`.

        :raises IoError: if the file exists, or the file system fails
        """
        try:
            filesystem.make_directory(self.path.parent)
            with self.path.open("x+b") as file:
                try:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    self.path.unlink(missing_ok=True)
                    raise
            filesystem.sync_directory(self.path.parent)
        except OSError as error:
            raise io_error(error, f"write {self.path}") from error

    def remove(self) -> None:
        """Remove the file, if it exists."""
        try:
            self.path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise io_error(error, f"remove {self.path}") from error

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each file directly in this directory, by name; empty if it does not exist."""
        found = {}
        for name in self.names():
            size = (self / name).size()
            if size is not None:
                found[name] = size
        return found

    def names(self) -> Iterator[str]:
        """Yield the names of the files and directories directly in this directory; none if it does not exist."""
        try:
            yield from [entry.name for entry in self.path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise io_error(error, f"list {self.path}") from error

    def size(self) -> int | None:
        """Return the size of the file in bytes; None if there is no such file, or it is a directory."""
        try:
            return self.path.stat().st_size if self.path.is_file() else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise io_error(error, f"read the size of {self.path}") from error

    def flush(self) -> None:
        """Flush the file and its entry in the directory to the disk; a missing file is ignored."""
        try:
            if self.path.is_file():
                filesystem.sync_file(self.path)
            filesystem.sync_directory(self.path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise io_error(error, f"flush {self.path}") from error

    def check_writable(self, key: str) -> None:
        """Raise an error if this user cannot create the directory or files in it; see :meth:`.Location.check_writable`.

        :param key: key of the pipeline's declaration that names the directory, for the message
        :raises ConfigError: if the path is a file, or this user may not write
        """
        filesystem.check_writable(self.path, key)
