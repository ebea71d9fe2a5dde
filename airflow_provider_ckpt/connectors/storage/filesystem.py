"""Resolve paths on a local or mounted file system, write files durably, and decide which file errors are outages."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import ConfigError, IoError

BOOKKEEPING_DIRECTORY = "_ckpt"
"""Name of the directory inside a target in which a sink stores its bookkeeping, such as fence and receipts."""

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNREACHABLE = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ENOTCONN, errno.ETIMEDOUT),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    }
)
"""Error numbers of a damaged or missing disk or mount, or of a machine that is out of resources."""


def local_path(text: str, key: str, connection: Connection | None = None) -> Path:
    """Return the absolute path for a path or URL in a pipeline, with symbolic links resolved.

    :param text: path or ``file://`` URL
    :param key: key of the pipeline's declaration that names the path, for the message
    :param connection: connection whose extra ``path`` (Airflow's ``fs`` type) is the base of a relative path; None for
        the working directory
    :raises ConfigError: if the URL has another scheme, or the path cannot be used
    """
    url = urlsplit(text)
    if "://" in text and url.scheme != "file":
        raise ConfigError(
            f"{key}: {url.scheme}:// locations are not supported, only local paths and file:// URLs.",
            hint="Use a path that every Spark executor can reach, such as a shared mount.",
        )
    root = str(connection.extra.get("path", "")) if connection else ""
    try:
        path = Path(root, Path(unquote(url.path) if url.scheme == "file" else text).expanduser()).resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
        return path
    except (OSError, RuntimeError, ValueError) as error:  # too long, circular links, NUL, unknown user in ~
        raise ConfigError(
            f"{key}: {text[:200]!a} is not a usable path: {_reason(error)}.", hint=f"Correct {key}."
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error).splitlines()[0].partition(" from ")[0].rstrip(".")


def escape(name: str) -> str:
    """Encode any name as one path component that does not begin with a dot or underscore; see :func:`unescape`.

    :param name: the name, such as a pipeline's
    """
    quoted = quote(name, safe=" @=+,")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted.startswith((".", "_")) else quoted


def unescape(component: str) -> str:
    """Restore a name that :func:`escape` has encoded.

    :param component: the path component
    """
    return unquote(component)


def check_writable(path: Path, key: str) -> None:
    """Raise an error if this user cannot create a directory, or cannot create files in it.

    :param path: the directory, which need not exist yet
    :param key: key of the pipeline's declaration that names it, for the message
    :raises ConfigError: if the path is a file, or this user may not write
    """
    existing = next(directory for directory in (path, *path.parents) if directory.exists())
    if not existing.is_dir():
        raise ConfigError(f"{key}: {existing} is a file, not a directory.", hint=f"Correct {key}.")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: {existing} is not writable for this user.", hint="Grant write access to it.")


def io_error(error: OSError, operation: str) -> IoError:
    """Convert an ``OSError`` to an :class:`IoError`, which the caller raises.

    If the disk is full, damaged or unreachable, or permission is missing, the error is an outage of the whole sink or
    source. An error of missing permission is marked as not recoverable, since a retry cannot help.

    :param error: the operating system's error
    :param operation: the operation and its object, for the message, such as ``write /data/x``
    """
    hint = None
    if error.errno in _DISK_FULL:
        hint = "Free some space, then run again; nothing was lost."
    elif error.errno in _FORBIDDEN:
        hint = "Give this user access to it, then run again; nothing was lost."
    return IoError(
        f"cannot {operation}: {os.strerror(error.errno) if error.errno else error}.",
        recoverable=error.errno not in _FORBIDDEN,
        is_outage=error.errno in _DISK_FULL | _FORBIDDEN | _UNREACHABLE,
        hint=hint,
    )


def write_durably(path: Path, data: bytes, *, exclusive: bool = False) -> None:
    """Write a file that only this user can read, and flush it to the disk; a failed write leaves no file.

    Once this returns, the file survives a power failure.

    :param path: the file; its directory is created if it is missing
    :param data: content of the file
    :param exclusive: whether to raise :class:`FileExistsError` if the file exists, instead of replacing it
    :raises OSError: if the file system fails
    """
    make_private_directory(path.parent)
    target = path if exclusive else private_files.temporary_path(path)
    with private_files.create(target) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if target != path:
                target.replace(path)
        except OSError:
            target.unlink()
            raise
    sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents durably, so that they survive a power failure.

    :param path: the directory
    :raises OSError: if the file system fails
    """
    for directory in _missing_directories(path):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents durably, so that only this user can read them.

    If :data:`BOOKKEEPING_DIRECTORY` is a part of the path, the missing directories above it get the default permissions
    instead, since they belong to the target.

    :param path: the directory
    :raises OSError: if the file system fails
    """
    for directory in _missing_directories(path):
        if BOOKKEEPING_DIRECTORY in path.parts and BOOKKEEPING_DIRECTORY not in directory.parts:
            directory.mkdir(exist_ok=True)
        else:
            private_files.make_directory(directory)
        sync_directory(directory.parent)


def _missing_directories(path: Path) -> list[Path]:
    """Return those of a directory and its parents that do not exist, the topmost first.

    :param path: the directory
    """
    return [directory for directory in (path, *path.parents) if not directory.is_dir()][::-1]


def sync_file(path: Path) -> None:
    """Flush a file's content to the disk.

    :param path: the file
    :raises OSError: if the file system fails
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush a directory's entries to the disk, so that new and renamed files in it survive a power failure.

    :param path: the directory
    :raises OSError: if the file system fails
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
