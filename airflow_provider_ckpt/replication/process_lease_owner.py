"""Build the names of lease owners that are processes, and check whether such a process has ended.

``core/task_lease_owner.py`` builds the names of lease owners that are tasks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def of_this_process() -> str:
    """Return the owner name of this process: host, pid and start time.

    The start time distinguishes this process from a later one with the same pid.
    """
    return of_process(os.getpid())


def of_process(pid: int) -> str:
    """Return the owner name of a process of this machine: host, pid and start time.

    The start time is empty if there is no such process.
    """
    return f"cli:{socket.gethostname()}:{pid}:{_started(pid)}"


def is_dead(owner: str) -> bool:
    """Return whether an owner name belongs to a process of this machine which certainly no longer runs.

    :param owner: owner name of a process (:func:`of_process`) or of a task; a task is never reported as dead
    """
    kind, _, rest = owner.partition(":")
    host, _, process = rest.partition(":")
    pid, _, started = process.partition(":")
    if kind != "cli" or host != socket.gethostname() or not pid.isdecimal():
        return False
    return _started(int(pid)) != started


def is_held(lease: Mapping[str, Any]) -> bool:
    """Return whether a lease has not expired and has an owner that may be alive.

    :param lease: the lease, as the ledger's ``status`` returns it
    """
    return bool(lease["held"]) and not is_dead(lease["owner"])


def _started(pid: int) -> str:
    """Return the start of a process in clock ticks since boot, as text.

    The text is empty if there is no such process, if the process is a zombie, or if there is no ``/proc``.

    :param pid: pid of the process
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
