"""Detect that a file changed or was replaced after it was recorded, and open unchanged files for reading."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from airflow_provider_ckpt.connectors.storage.filesystem import io_error
from airflow_provider_ckpt.core.errors import CkptError, SourceError

LINK = "symbolic link"
"""Kind of a symbolic link, as :func:`kind_of` returns it."""

FOLLOW_LINKS = "write source.follow_links: true"
"""Part of an error's hint: the setting with which the source follows symbolic links."""

_CHANGED_HINT = "Put the recorded file back; bring new data as a new file, renamed into place when complete."


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identity of a local file, which changes when the file is modified or replaced.

    :param time: time of the last modification, in ns since 1970
    :param size: number of bytes
    :param inode: inode number, which differs if the file was replaced
    """

    time: int
    size: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the identity of an existing file, given its status."""
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)

    @classmethod
    def parse(cls, etag: str) -> Self:
        """Restore an identity from its :attr:`etag`."""
        return cls(*map(int, etag.split("-")))

    @property
    def etag(self) -> str:
        """The identity as text, as the ledger stores it."""
        return f"{self.time}-{self.size}-{self.inode}"


def etag_of(status: os.stat_result) -> str:
    """Return the etag of a file (its identity as text), given its status."""
    return FileIdentity.of(status).etag


def open_recorded(path: str, etag: str, *, follow_links: bool = False) -> BinaryIO:
    """Open a recorded file for reading, and verify that it is unchanged.

    :param path: the file
    :param etag: recorded identity of the file
    :param follow_links: whether the path itself may be a symbolic link
    :raises SourceError: if the file has changed, is missing or may not be read
    :raises IoError: if the file system fails
    """
    # Without O_NONBLOCK, opening a FIFO that replaced the file would block forever.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise read_error(path, etag, error) from error
    file = os.fdopen(descriptor, "rb")
    try:
        verify(path, etag, os.fstat(descriptor))
    except BaseException:
        file.close()
        raise
    return file


def is_unchanged(path: str, etag: str) -> bool:
    """Return whether a file exists and still has the identity that was recorded for it.

    :param path: absolute path of the file
    :param etag: the recorded identity, as text
    """
    try:
        return etag_of(Path(path).stat()) == etag
    except OSError:
        return False


def verify(path: str, etag: str, status: os.stat_result | None = None) -> None:
    """Raise an error if a file does not have its recorded identity.

    :param path: the file
    :param etag: recorded identity of the file
    :param status: status of the open file; None to read it from the file system
    :raises SourceError: if the file has another identity than recorded, is missing or may not be read
    :raises IoError: if the file system fails
    """
    if status is None:
        try:
            status = Path(path).stat()
        except OSError as error:
            raise read_error(path, etag, error) from error
    if etag_of(status) != etag:
        recorded = FileIdentity.parse(etag)
        raise SourceError(
            f"{path} changed after it was discovered: recorded {recorded.size} bytes (etag {etag}), "
            f"now {status.st_size} bytes (etag {etag_of(status)}).",
            hint=_CHANGED_HINT,
        )


def read_error(path: str, etag: str, error: OSError) -> CkptError:
    """Return the exception for a recorded file that cannot be opened or read; the caller raises it.

    It is a :class:`SourceError` if the file is gone, not readable for this user, or a symbolic link that is not
    followed; else an :class:`IoError`.

    :param path: the file
    :param etag: recorded identity of the file
    :param error: the operating system's error
    """
    if isinstance(error, FileNotFoundError):
        return SourceError(
            f"{path} is gone; it was recorded with {FileIdentity.parse(etag).size} bytes (etag {etag}) and is still "
            "needed.",
            hint="Put the file back as it was, or give up its content: `airflow ckpt inspect` names its batches and "
            "`airflow ckpt skip PIPELINE BATCH --reason …` skips them.",
        )
    if isinstance(error, PermissionError):
        return SourceError(f"{path} is not readable for this user.", hint="Grant read access to it.")
    if is_link_refusal(path, error):
        if is_unchanged(path, etag):
            return SourceError(
                f"{path} is a symbolic link to the file that was recorded, and links are not followed.",
                hint=f"If it is meant to be read, {FOLLOW_LINKS}.",
            )
        return SourceError(
            f"{path} changed after it was discovered: it is a symbolic link now.",
            hint=f"{_CHANGED_HINT} If links to files as they were recorded are meant to be read, {FOLLOW_LINKS}.",
        )
    return io_error(error, f"read {path}")


def is_link_refusal(path: str, error: OSError) -> bool:
    """Return whether opening a file failed because its path is a symbolic link, which is not followed.

    :param path: the file
    :param error: the operating system's error
    """
    import errno

    return error.errno == errno.ELOOP and Path(path).is_symlink()


def kind_of(status: os.stat_result) -> str | None:
    """Return the kind of a path that is not a regular file, such as ``directory``; None for a regular file."""
    names = {
        stat.S_IFDIR: "directory",
        stat.S_IFLNK: LINK,
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "device",
        stat.S_IFBLK: "device",
    }
    return names.get(stat.S_IFMT(status.st_mode))
