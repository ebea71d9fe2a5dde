"""A run's directory on this machine: one that a killed run left behind is known for what it is, and swept by the next.

Its name says whose it is (host, pid and start of the process, as ``replication/owner.py`` tells them); a lock that ends
with the process says so too, where a pid means nothing: in containers that share a folder and a host's name.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from airflow_provider_ckpt.replication.owner import is_dead, of_this_process

_PREFIX = "ckpt-run-"
_NAME = re.compile(_PREFIX + r"(?P<host>.+)-(?P<pid>\d+)-(?P<started>\d+)-\w+")


class RunDirectory:
    """A new directory of mode 0700 in the temporary folder, this process's until it is removed or the process ends.

    :param path: where it is
    """

    def __init__(self) -> None:
        kind_and_host, pid, started = of_this_process().rsplit(":", 2)
        host = kind_and_host.partition(":")[2].replace(os.sep, "_")
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{host}-{pid}-{started}-"))
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # a file system without locks: then a sweep goes by the name alone
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._held = [lock]  # who takes it out removes the directory

    def remove(self) -> None:
        """Remove it with all that is in it; a second time nothing happens, be it from another thread meanwhile."""
        try:
            lock = self._held.pop()
        except IndexError:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove what killed runs of this user left in the temporary folder.

    Only where the process is certainly dead: the name says that it ran on this host and it runs no more, and nobody
    holds the lock. Links are not followed, and nothing that goes wrong here stops a run.
    """
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        left = [Path(entry.path) for entry in entries if _is_left_behind(entry.name)]
        for path in left:
            with suppress(OSError):
                _remove_unlocked(path)


def _is_left_behind(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and is_dead(f"cli:{found['host']}:{found['pid']}:{found['started']}")


def _remove_unlocked(path: Path) -> None:
    """Remove a directory of this user's that nobody has locked.

    :raises OSError: if it is a link, gone, not ours to open, or locked
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
