"""Names of lease owners: a task of a DAG run, or a process of this machine whose death can be detected."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def of_task(dag_id: str, run_id: str, pipeline: str, task: str) -> str:
    """Return the owner name of a task of a DAG run in all its tries, or of a task group, whose tasks share the name.

    :param dag_id: id of the DAG
    :param run_id: id of the DAG run
    :param pipeline: name of the pipeline
    :param task: id of the task or group; with its map index if it is mapped, such as ``replicate[2]``
    """
    return f"dag:{dag_id}/{run_id}/{pipeline}/{task}"


def dag_run_of(owner: str | None) -> tuple[str, str] | None:
    """Return the DAG id and run id in an owner name; None if the owner is not a task of a DAG run."""
    parts = _parts(owner)
    return (parts[0], parts[1]) if parts else None


def task_of(owner: str | None) -> tuple[str, int] | None:
    """Return task or group id of an owner name, and map index (-1 without one); None if the owner is not a task."""
    parts = _parts(owner)
    if parts is None:
        return None
    name, _, index = parts[3].removesuffix("]").partition("[")
    return name, int(index) if index else -1


def _parts(owner: str | None) -> list[str] | None:
    """Return DAG id, run id, pipeline and task of an owner name; None if the owner is not a task."""
    kind, _, rest = (owner or "").partition(":")
    parts = rest.split("/")
    return parts if kind == "dag" and len(parts) == 4 else None


def of_this_process() -> str:
    """Return the owner name of this process: host, pid and start time.

    The start time distinguishes this process from a later one with the same pid.
    """
    return of_process(os.getpid())


def of_process(pid: int) -> str:
    """Return the owner name of a process of this machine: host, pid and start time."""
    return f"cli:{socket.gethostname()}:{pid}:{_started(pid)}"


def is_dead(owner: str) -> bool:
    """Return whether an owner name is that of a process of this machine which certainly no longer runs."""
    kind, _, rest = owner.partition(":")
    host, _, process = rest.partition(":")
    pid, _, started = process.partition(":")
    if kind != "cli" or host != socket.gethostname() or not pid.isdecimal():
        return False
    return _started(int(pid)) != started


def is_held(lease: Mapping[str, Any]) -> bool:
    """Return whether a lease has an owner that may be alive.

    :param lease: the lease, as the ledger's ``status`` returns it
    """
    return bool(lease["held"]) and not is_dead(lease["owner"])


def _started(pid: int) -> str:
    """Return the start of a process in clock ticks since boot, as text; empty without such a process or ``/proc``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
