"""Open the runtime directory, which contains the directories of this user's standing drivers.

Only this user can use it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.spark.driver.standing_protocol import directory_of

_NAME = "ckpt-spark"


def open_runtime_directory(*, create: bool) -> tuple[Path, int]:
    """Open the runtime directory, which contains the directories of this user's standing drivers.

    It is in ``XDG_RUNTIME_DIR`` if that is a directory of this user, else in the temporary folder.

    :param create: whether to create the directory, with mode 0700, if it does not exist
    :return: path of the directory, and a file descriptor of it
    :raises FileNotFoundError: if the directory does not exist and ``create`` is False
    :raises EngineError: if the directory cannot be created or opened, is a link, or could be used by another user
    """
    path = _path()
    try:
        if create:
            private_files.make_directory(path)
        descriptor = directory_of(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not create:
            raise
        raise _unusable(path, error.strerror or repr(error)) from error
    found = os.fstat(descriptor)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid() or mode != stat.S_IRWXU:
        os.close(descriptor)
        raise _unusable(path, f"it belongs to the user with id {found.st_uid} and has mode {mode:04o}")
    return path, descriptor


def _unusable(path: Path, reason: str) -> EngineError:
    """Return the error for a path that cannot be the runtime directory, or that another user may have put there.

    :param path: the path
    :param reason: reason why the path is refused, which the message quotes in parentheses
    """
    return EngineError(
        f"{path} is not a directory of this user with mode 0700 ({reason}): delete it, or set XDG_RUNTIME_DIR to a "
        "directory of this user"
    )


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
