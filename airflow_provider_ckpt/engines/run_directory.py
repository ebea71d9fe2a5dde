"""Create the directory of a run on this machine, and remove directories that killed runs left behind.

A run and its driver exchange files in this directory. Its name contains host, pid and start time of the run's process
(as in ``replication/process_lease_owner.py``). In addition the process locks the directory; the lock ends with the
process. The lock is needed where the pid cannot show whether the process lives: in containers that share a temporary
folder and a host name.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from airflow_provider_ckpt.replication.process_lease_owner import is_dead, of_this_process

_PREFIX = "ckpt-run-"
_NAME = re.compile(_PREFIX + r"(?P<host>.+)-(?P<pid>\d+)-(?P<started>\d+)-\w+")


class RunDirectory:
    """New directory of mode 0700, locked until it is removed or the process ends.

    :param parent: directory in which it is created; None for the temporary folder, where other processes see that a
        run is in progress
    :ivar path: path of the directory
    """

    def __init__(self, parent: Path | None = None) -> None:
        kind_and_host, pid, started = of_this_process().rsplit(":", 2)
        host = kind_and_host.partition(":")[2].replace(os.sep, "_")
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{host}-{pid}-{started}-", dir=parent))
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # on a file system without locks, only the directory's name shows the owner
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits while another process tests the lock
        self._lock_file = [lock]  # the thread that pops it removes the directory

    def remove(self) -> None:
        """Remove the directory with its files. Further calls do nothing, even from another thread."""
        try:
            lock = self._lock_file.pop()
        except IndexError:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> None:
    """Remove the directories that killed runs of this user left in the temporary folder.

    A directory is removed only if its process is certainly dead: its name has this host and the pid of a process that
    no longer runs, and it is not locked. Links are not followed, and errors are ignored.
    """
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        left = [Path(entry.path) for entry in entries if _is_left_behind(entry.name)]
        for path in left:
            with suppress(OSError):
                _remove_unlocked(path)


def other_run_in_progress() -> bool:
    """Return whether another process of this user has a run in progress on this machine.

    Such a process has a locked run directory.
    """
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        return any(_is_of_another(entry) for entry in entries)
    return False


def _is_of_another(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of the temporary folder is the locked run directory of another process of this user.

    :param entry: the entry
    """
    found = _NAME.fullmatch(entry.name)
    if found is None or found["pid"] == str(os.getpid()):
        return False
    try:
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # the run has ended, or the directory is another user's
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.fstat(descriptor).st_uid == os.geteuid()
    finally:
        os.close(descriptor)
    return False


def _is_left_behind(name: str) -> bool:
    """Return whether a directory's name contains this host and the pid of a process that no longer runs."""
    found = _NAME.fullmatch(name)
    return found is not None and is_dead(f"cli:{found['host']}:{found['pid']}:{found['started']}")


def _remove_unlocked(path: Path) -> None:
    """Remove a run directory on which no process holds the lock; do nothing if it belongs to another user.

    :param path: path of the directory
    :raises OSError: if the path is a link, does not exist, cannot be opened, or is locked
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
