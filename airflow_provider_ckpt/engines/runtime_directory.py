"""Open the directory below which this user's standing drivers have their directories; only this user can use it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.spark.driver.standing_protocol import directory_of

_NAME = "ckpt-spark"


def open_runtime_directory(*, create: bool) -> tuple[Path, int]:
    """Open the directory below which this user's standing drivers have their directories.

    It is in ``XDG_RUNTIME_DIR`` if that is a directory of this user, else in the temporary folder.

    :param create: whether to create the directory, with mode 0700, if it does not exist
    :return: path of the directory, and a file descriptor of it
    :raises FileNotFoundError: if the directory does not exist
    :raises OSError: if the directory cannot be opened, is a link, or could be used by another user
    """
    path = _path()
    if create:
        private_files.make_directory(path)
    descriptor = directory_of(path)
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
        os.close(descriptor)
        raise PermissionError(f"{path} is not a directory of this user with mode 0700")
    return path, descriptor


def _path() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute() and _is_own_directory(Path(runtime)):
        return Path(runtime) / _NAME
    return Path(tempfile.gettempdir()).resolve() / f"{_NAME}-{os.geteuid()}"


def _is_own_directory(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)
