"""Create files and directories that only the current user can read.

Files get mode 0600 and directories 0700 under any umask, and symbolic links to files are refused. The provider uses
this module for the files of its own, such as dead letters, receipts, the file of a ledger, the input of Spark and class
archives. The files that a sink delivers are not created here, because other users read them.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

_FILE, _DIRECTORY = 0o600, 0o700


def create(path: Path) -> BinaryIO:
    """Create a file that only the current user can read, and return it open for writing in binary mode.

    :raises FileExistsError: if the path exists, even as a dangling link
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE)
    os.fchmod(descriptor, _FILE)
    return os.fdopen(descriptor, "wb")


def append(path: Path) -> BinaryIO:
    """Open a file for appending, and create it if it does not exist; only the current user can read it afterwards.

    :return: the file, open in binary mode
    :raises PermissionError: if the path is not a regular file, or the file is owned by another user
    :raises OSError: if the path is a link, or the file cannot be opened
    """
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, _FILE)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(f"{path} is not a regular file of this user")
    os.fchmod(descriptor, _FILE)
    return os.fdopen(descriptor, "ab")


def temporary_path(path: Path) -> Path:
    """Return a path for a temporary file that the caller writes and then renames to ``path``.

    The rename makes the finished file appear at once. The temporary file is in the same directory and has a hidden,
    random name, such as ``.data.csv.9f86d081884c7d65.tmp``.
    """
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")


def make_directory(path: Path) -> None:
    """Create a directory with mode 0700 in an existing parent; leave an existing directory as it is.

    :raises FileExistsError: if the path exists and is not a directory
    """
    path.mkdir(mode=_DIRECTORY, exist_ok=True)


def make_directories(path: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700."""
    for missing in reversed([folder for folder in (path, *path.parents) if not folder.is_dir()]):
        make_directory(missing)
