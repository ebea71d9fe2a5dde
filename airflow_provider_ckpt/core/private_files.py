"""Files and directories for this user's eyes alone, whatever the umask: modes 0600 and 0700, never through a link.

All that the product writes for itself is made here: dead letters, receipts, a ledger's file, what is handed to Spark,
archives. What a sink delivers for others to read is not.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

_FILE, _DIRECTORY = 0o600, 0o700


def create(path: Path) -> BinaryIO:
    """Create a file and open it for writing.

    :raises FileExistsError: if there is something of that name, be it a link that leads nowhere
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE)
    os.fchmod(descriptor, _FILE)
    return os.fdopen(descriptor, "wb")


def append(path: Path) -> BinaryIO:
    """Open a file for writing at its end; it is created if there is none.

    :raises OSError: if a link or anything else but a file of this user's has that name
    """
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, _FILE)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(f"{path} is no file of this user's")
    os.fchmod(descriptor, _FILE)
    return os.fdopen(descriptor, "ab")


def unused_name(path: Path) -> Path:
    """A hidden name beside a path that nobody can guess, for what is to be renamed to it."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")


def make_directory(path: Path) -> None:
    """Create a directory whose parent is there; one that is there stays as it is.

    :raises FileExistsError: if there is something else of that name
    """
    path.mkdir(mode=_DIRECTORY, exist_ok=True)


def make_directories(path: Path) -> None:
    """Create a directory and those of its parents that are missing."""
    for missing in reversed([place for place in (path, *path.parents) if not place.is_dir()]):
        make_directory(missing)
