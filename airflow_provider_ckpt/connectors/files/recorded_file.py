"""A file as it was recorded at its discovery: opened without following links, and refused if it is another one now."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from airflow_provider_ckpt.connectors.local.filesystem import io_error
from airflow_provider_ckpt.core.errors import CkptError, SourceError

LINK = "symbolic link"
"""Kind of a path that is one; see :func:`kind_of`."""

FOLLOW_LINKS = "write source.follow_links: true"
"""Remedy for a link that is meant, in a hint."""

_TO_DO = "Put the recorded file back; bring new data as a new file, renamed into place when complete."


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a local file, which changes when the file is modified or replaced.

    :param time: of the last modification, in ns
    :param size: in bytes
    :param inode: its number; another file has a different one
    """

    time: int
    size: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """The identity of a file that is there."""
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)

    @classmethod
    def parse(cls, etag: str) -> Self:
        """The identity that :attr:`etag` spells."""
        return cls(*map(int, etag.split("-")))

    @property
    def etag(self) -> str:
        """As it is recorded."""
        return f"{self.time}-{self.size}-{self.inode}"


def etag_of(status: os.stat_result) -> str:
    """Return the etag under which a file with this status is recorded."""
    return Identity.of(status).etag


def open_recorded(path: str, etag: str, *, follow_links: bool = False) -> BinaryIO:
    """Open a recorded file for reading, and make sure that what was opened is what was recorded.

    :param follow_links: whether the path itself may be a symbolic link
    :raises SourceError: if it changed, is gone or may not be read
    :raises IoError: if the file system fails
    """
    # A FIFO that has taken the file's place would block for ever without O_NONBLOCK.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise unreadable(path, etag, error) from error
    file = os.fdopen(descriptor, "rb")
    try:
        verify(path, etag, os.fstat(descriptor))
    except BaseException:
        file.close()
        raise
    return file


def unchanged(path: str, etag: str) -> bool:
    """Whether a recorded file is still what was recorded."""
    try:
        return etag_of(Path(path).stat()) == etag
    except OSError:
        return False


def verify(path: str, etag: str, status: os.stat_result | None = None) -> None:
    """Fail if a recorded file is not what was recorded.

    :param status: of the open file; asked of the file system by default
    :raises SourceError: saying what was recorded and what is there
    """
    if status is None:
        try:
            status = Path(path).stat()
        except OSError as error:
            raise unreadable(path, etag, error) from error
    if etag_of(status) != etag:
        recorded = Identity.parse(etag)
        raise SourceError(
            f"{path} changed after it was discovered: recorded {recorded.size} bytes (etag {etag}), "
            f"now {status.st_size} bytes (etag {etag_of(status)}).",
            hint=_TO_DO,
        )


def unreadable(path: str, etag: str, error: OSError) -> CkptError:
    """Return the exception to raise when a recorded file cannot be opened.

    :param path: of the file
    :param etag: the recorded one
    :param error: the operating system's
    """
    if isinstance(error, FileNotFoundError):
        return SourceError(
            f"{path} is gone; it was recorded with {Identity.parse(etag).size} bytes (etag {etag}) and is still "
            "needed.",
            hint="Put the file back as it was, or give up what it held: `airflow ckpt inspect` names its batches and "
            "`airflow ckpt skip PIPELINE BATCH --reason …` lets them go.",
        )
    if isinstance(error, PermissionError):
        return SourceError(f"{path} may not be read by this user.", hint="Grant read access to it.")
    if is_link_refusal(path, error):
        if unchanged(path, etag):
            return SourceError(
                f"{path} is a symbolic link to the file that was recorded, and links are not followed.",
                hint=f"If it is meant to be read, {FOLLOW_LINKS}.",
            )
        return SourceError(
            f"{path} changed after it was discovered: it is a symbolic link now.",
            hint=f"{_TO_DO} If links to files as they were recorded are meant to be read, {FOLLOW_LINKS}.",
        )
    return io_error(error, f"read {path}")


def is_link_refusal(path: str, error: OSError) -> bool:
    """Whether a file could not be opened because a symbolic link has its name."""
    import errno

    return error.errno == errno.ELOOP and Path(path).is_symlink()


def kind_of(status: os.stat_result) -> str | None:
    """Return the name of the kind of a path that is no regular file, such as ``directory``; None for a regular file."""
    names = {
        stat.S_IFDIR: "directory",
        stat.S_IFLNK: LINK,
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "device",
        stat.S_IFBLK: "device",
    }
    return names.get(stat.S_IFMT(status.st_mode))
