"""Files of a files source in a local or mounted file system: list them, and open them unless they changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from airflow_provider_ckpt.connectors.files import recorded_file
from airflow_provider_ckpt.connectors.files.discovery import Discovery, discover
from airflow_provider_ckpt.connectors.files.found_files import FoundFile
from airflow_provider_ckpt.connectors.files.listing import check_path, list_files
from airflow_provider_ckpt.connectors.files.own_output import matches
from airflow_provider_ckpt.connectors.files.recorded_file import FileIdentity
from airflow_provider_ckpt.connectors.files.source_storage import SourceStorage
from airflow_provider_ckpt.connectors.outputs import WrittenFiles
from airflow_provider_ckpt.connectors.source_plan import SourceFile
from airflow_provider_ckpt.core.errors import CkptError, SourceError


class LocalFiles(SourceStorage):
    """Storage of a files source in a local or mounted file system; see :class:`SourceStorage`.

    :param path: directory (without its subdirectories), glob pattern (``**`` matches any number of directories) or file
    :param follow_links: whether to follow symbolic links
    """

    remote = False

    def __init__(self, path: Path, *, follow_links: bool) -> None:
        self._path = path
        self._follow_links = follow_links

    @property
    def root(self) -> str:
        """The path that the source names, resolved; see :attr:`SourceStorage.root`."""
        return str(self._path)

    def check(self) -> None:
        """Raise an error if the path cannot be listed; see :meth:`SourceStorage.check`."""
        check_path(self._path)

    def discover(self, known: Sequence[SourceFile], *, delivered: int = 0, look_again: bool = True) -> Discovery:
        """List the files, and find out which are new, gone or changed; see :meth:`SourceStorage.discover`.

        A file has changed if its inode, size or time of modification is not as recorded.

        :param known: all files discovered before, in order
        :param delivered: end of the delivered positions: all positions before it have a verdict
        :param look_again: whether to check known files, too
        """
        check_path(self._path)
        passed = () if look_again else frozenset(file.path for file in known)
        listing = list_files(self._path, follow_links=self._follow_links, known=passed)
        checked = known if look_again else ()
        return discover(self.root, listing, known, _changed_file_error, delivered=delivered, checked=checked)

    def open(self, path: str, etag: str, *, checked: bool = False) -> BinaryIO:  # noqa: ARG002
        """Open a recorded file, and verify that it is unchanged; see :meth:`SourceStorage.open`.

        :param path: the file
        :param etag: recorded identity of the file
        :param checked: not used, since the check of a local file is cheap
        """
        return recorded_file.open_recorded(path, etag, follow_links=self._follow_links)

    def verify(self, path: str, etag: str, file: BinaryIO | None = None) -> None:
        """Raise an error if a file's inode, size or time is not as recorded; see :meth:`SourceStorage.verify`.

        :param path: the file
        :param etag: recorded identity of the file
        :param file: the open file; None to check the file that has this name now
        """
        recorded_file.verify(path, etag, None if file is None else os.fstat(file.fileno()))

    def is_unchanged(self, path: str, etag: str) -> bool:
        """Return whether a file exists and its inode, size and time are as recorded.

        See :meth:`SourceStorage.is_unchanged`.
        """
        return recorded_file.is_unchanged(path, etag)

    def read_error(self, path: str, etag: str, error: OSError) -> CkptError:
        """Return the exception to raise for a file that cannot be read; see :meth:`SourceStorage.read_error`.

        :param path: the file
        :param etag: recorded identity of the file
        :param error: the operating system's error
        """
        return recorded_file.read_error(path, etag, error)

    def contains(self, output: WrittenFiles) -> bool:
        """Return whether a sink writes files that the source reads; see :meth:`SourceStorage.contains`.

        Links and bind mounts are recognised.
        """
        return matches(self._path, output, follow_links=self._follow_links)


def _changed_file_error(file: SourceFile, found: FoundFile) -> SourceError | None:
    """Return the error for a delivered file that was changed, or replaced by a file with another content.

    Return None if the file that has this name now has the recorded time and size: the file then counts as a copy of the
    recorded one.

    :param file: the file as it was recorded
    :param found: the file that has this name now
    """
    was, now = FileIdentity.parse(file.etag), FileIdentity.parse(found.etag)
    if (was.time, was.size) == (now.time, now.size):
        return None
    if now.inode != was.inode:
        change = "it was replaced by another file"
    elif now.size > was.size:
        change = "it was appended to or overwritten"
    elif now.size < was.size:
        change = "it was truncated or overwritten"
    else:
        change = "it was overwritten, or its time was set"
    path, new_name = quote(file.path), quote(_free_name(file.path))
    only_more = ""
    if now.size > was.size == file.size:  # false for Parquet, where file.size is a number of rows
        only_more = (
            f". To deliver only what was appended: tail -c +{was.size + 1} {path} > {new_name}.tmp, "
            f"mv {new_name}.tmp {new_name}, and move {path} away"
        )
    return SourceError(
        f"{file.path} changed after it was delivered: {change}. It was {was.size} bytes and is {now.size} bytes now. "
        "Its current content is not delivered.",
        position=file.base,
        hint=f"To deliver its whole current content as a new file: mv {path} {new_name}{only_more}. If it is not to be "
        "delivered, move it out of the source, or restore the old file.",
    )


def _free_name(path: str) -> str:
    old = Path(path)
    return str(old.with_name(f"{old.stem}-2{old.suffix}"))
