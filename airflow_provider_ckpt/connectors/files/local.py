"""What the connectors on a local file system share: paths, durable writes, and ``OSError`` in our vocabulary."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core.errors import ConfigError, IoError

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
    return Path(root, Path(unquote(url.path) if url.scheme == "file" else text).expanduser()).resolve()


def escape(name: str) -> str:
    """A name of any characters as one path component that is never hidden; :func:`unescape` is its inverse."""
    quoted = quote(name, safe=" @=+,")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted.startswith((".", "_")) else quoted


def unescape(component: str) -> str:
    """The name that :func:`escape` was given."""
    return unquote(component)


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
    """Write a file so that it survives a power cut once this returns; a failed write leaves no file behind.

    :param exclusive: fail with :class:`FileExistsError` if it exists, instead of replacing it
    """
    make_directory(path.parent)
    target = path if exclusive else path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with target.open("xb" if exclusive else "wb") as file:
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
    missing = [directory for directory in (path, *path.parents) if not directory.is_dir()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


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
