"""Paths, durable writes and error conversion for connectors on a local file system."""

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
"""Name of the directory at a target that contains a sink's bookkeeping."""

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNREACHABLE = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ENOTCONN, errno.ETIMEDOUT),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    }
)
"""Errors of a broken or missing disk or mount, or of a machine that is out of resources."""


def local_path(text: str, key: str, connection: Connection | None = None) -> Path:
    """Return the resolved local path that a pipeline names, as a plain path or a ``file://`` URL.

    :param text: the path or URL
    :param key: the pipeline's key, for the message
    :param connection: its extra ``path`` (Airflow's ``fs`` type) is the base of a relative path; the default is the
        working directory
    :raises ConfigError: for a URL of any other scheme, or a path that cannot be used
    """
    url = urlsplit(text)
    if "://" in text and url.scheme != "file":
        raise ConfigError(
            f"{key}: {url.scheme}:// locations are not supported, only local paths and file:// URLs.",
            hint="Use a path that every lane can reach, such as a shared mount.",
        )
    root = str(connection.extra.get("path", "")) if connection else ""
    try:
        path = Path(root, Path(unquote(url.path) if url.scheme == "file" else text).expanduser()).resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
        return path
    except (OSError, RuntimeError, ValueError) as error:  # too long, circular links, NUL, no such user's home
        raise ConfigError(
            f"{key}: {text[:200]!a} is not a usable path: {_reason(error)}.", hint=f"Correct {key}."
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error).splitlines()[0].partition(" from ")[0].rstrip(".")


def escape(name: str) -> str:
    """Encode any name as one path component that is never hidden; :func:`unescape` is its inverse."""
    quoted = quote(name, safe=" @=+,")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted.startswith((".", "_")) else quoted


def unescape(component: str) -> str:
    """Return the name that was given to :func:`escape`."""
    return unquote(component)


def check_writable(path: Path, key: str) -> None:
    """Raise an error if a directory cannot be created or written.

    :param path: the directory, which may not exist yet
    :param key: the pipeline's key, for the message
    :raises ConfigError: stating the reason
    """
    existing = next(directory for directory in (path, *path.parents) if directory.exists())
    if not existing.is_dir():
        raise ConfigError(f"{key}: {existing} is a file, not a directory.", hint=f"Correct {key}.")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: {existing} is not writable for this user.", hint="Grant write access to it.")


def io_error(error: OSError, operation: str) -> IoError:
    """Convert an ``OSError``; a full, forbidden, broken or unreachable disk is an error of the whole sink or source.

    :param error: the operating system's error
    :param operation: the operation and its object, as in ``write /data/x``
    """
    hint = None
    if error.errno in _DISK_FULL:
        hint = "Free some space, then run again; nothing was lost."
    elif error.errno in _FORBIDDEN:
        hint = "Let this user do that, then run again; nothing was lost."
    return IoError(
        f"cannot {operation}: {os.strerror(error.errno) if error.errno else error}.",
        recoverable=error.errno not in _FORBIDDEN,
        is_outage=error.errno in _DISK_FULL | _FORBIDDEN | _UNREACHABLE,
        hint=hint,
    )


def write_durably(path: Path, data: bytes, *, exclusive: bool = False) -> None:
    """Write a private file so that it survives a power failure once this returns; a failed write leaves no file.

    :param path: the file; its directory is created if missing
    :param data: its content
    :param exclusive: raise :class:`FileExistsError` if the file exists, instead of replacing it
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
    """Create a directory and its missing parents, so that each survives a power failure."""
    for directory in _missing_directories(path):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def make_private_directory(path: Path) -> None:
    """Create a directory for this user alone, and its missing parents, durably.

    The parents of :data:`BOOKKEEPING_DIRECTORY` are created readable for other users.
    """
    for directory in _missing_directories(path):
        if BOOKKEEPING_DIRECTORY in path.parts and BOOKKEEPING_DIRECTORY not in directory.parts:
            directory.mkdir(exist_ok=True)
        else:
            private_files.make_directory(directory)
        sync_directory(directory.parent)


def _missing_directories(path: Path) -> list[Path]:
    """Return the missing ones of a directory and its parents, the topmost first."""
    return [directory for directory in (path, *path.parents) if not directory.is_dir()][::-1]


def sync_file(path: Path) -> None:
    """Flush a file's content to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Flush a directory's entries to the disk, so that a new or renamed file in it survives a power failure."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
