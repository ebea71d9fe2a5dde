"""What the connectors on a local file system share: paths, durable writes, and ``OSError`` in our vocabulary."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import ConfigError, IoError

OWN = "_ckpt"
"""The directory at a target that holds a sink's bookkeeping."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_OUT_OF_REACH = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ENOTCONN, errno.ETIMEDOUT),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    }
)
"""A disk or a mount that is broken or gone, or a machine that has no more to give."""


def local_path(text: str, key: str, connection: Connection | None = None) -> Path:
    """The resolved local path that a pipeline names, plain or as a ``file://`` URL.

    :param key: the pipeline's key, for the message
    :param connection: its extra ``path`` (Airflow's ``fs`` type) is where a relative path starts; else the working
        directory
    :raises ConfigError: for a URL of any other scheme
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
    except (OSError, RuntimeError, ValueError) as error:  # too long, links in a circle, NUL, no such user's home
        raise ConfigError(
            f"{key}: {text[:200]!a} is no usable path: {_reason(error)}.", hint=f"Correct {key}."
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error).splitlines()[0].partition(" from ")[0].rstrip(".")


def escape(name: str) -> str:
    """A name of any characters as one path component that is never hidden; :func:`unescape` is its inverse."""
    quoted = quote(name, safe=" @=+,")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted.startswith((".", "_")) else quoted


def unescape(component: str) -> str:
    """The name that :func:`escape` was given."""
    return unquote(component)


def check_writable(path: Path, key: str) -> None:
    """Fail clearly if a directory cannot be made or written.

    :param key: the pipeline's key, for the message
    :raises ConfigError: saying why
    """
    place = next(directory for directory in (path, *path.parents) if directory.exists())
    if not place.is_dir():
        raise ConfigError(f"{key}: {place} is a file, not a directory.", hint=f"Correct {key}.")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{key}: {place} may not be written by this user.", hint="Grant write access to it.")


def io_error(error: OSError, doing: str) -> IoError:
    """An ``OSError`` as ours; a full, forbidden, broken or unreachable place fails the sink or source as a whole.

    :param doing: what was being done, to what, as in ``write /data/x``
    """
    hint = None
    if error.errno in _FULL:
        hint = "Free some space, then run again; nothing was lost."
    elif error.errno in _REFUSED:
        hint = "Let this user do that, then run again; nothing was lost."
    return IoError(
        f"cannot {doing}: {os.strerror(error.errno) if error.errno else error}.",
        recoverable=error.errno not in _REFUSED,
        whole=error.errno in _FULL | _REFUSED | _OUT_OF_REACH,
        hint=hint,
    )


def write_durably(path: Path, data: bytes, *, exclusive: bool = False) -> None:
    """Write a file for this user alone, so that it survives a power cut once this returns; a failed write leaves none.

    :param exclusive: fail with :class:`FileExistsError` if it exists, instead of replacing it
    """
    make_own_directory(path.parent)
    target = path if exclusive else private_files.unused_name(path)
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
    """Create a directory and its parents where they are missing, each so that it survives a power cut."""
    for directory in _missing(path):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def make_own_directory(path: Path) -> None:
    """As :func:`make_directory`, for this user alone; but for what :data:`OWN` lies in, which is for others to read."""
    for directory in _missing(path):
        if OWN in path.parts and OWN not in directory.parts:
            directory.mkdir(exist_ok=True)
        else:
            private_files.make_directory(directory)
        sync_directory(directory.parent)


def _missing(path: Path) -> list[Path]:
    """Those of a directory and its parents that are not there, the uppermost first."""
    return [directory for directory in (path, *path.parents) if not directory.is_dir()][::-1]


def sync_file(path: Path) -> None:
    """Force a file's bytes to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Force a directory's entries to the disk, so that a new or renamed file in it survives a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
