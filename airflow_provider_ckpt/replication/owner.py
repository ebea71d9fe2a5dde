"""Who owns a lease: a task of a DAG run, or a process of this machine whose death can be seen."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def of_task(dag_id: str, run_id: str, pipeline: str, task: str) -> str:
    """The owner name of a task of a DAG run, in all its tries; or of a task group, whose tasks share it.

    :param task: its id, or the group's; with its map index where it is mapped, such as ``replicate[2]``
    """
    return f"dag:{dag_id}/{run_id}/{pipeline}/{task}"


def dag_run_of(owner: str | None) -> tuple[str, str] | None:
    """The DAG id and run id of an owner, None if it is no task of a DAG run."""
    parts = _parts(owner)
    return (parts[0], parts[1]) if parts else None


def task_of(owner: str | None) -> tuple[str, int] | None:
    """The id of an owner's task or task group, and its map index, -1 if it has none; None if it is no task."""
    parts = _parts(owner)
    if parts is None:
        return None
    name, _, index = parts[3].removesuffix("]").partition("[")
    return name, int(index) if index else -1


def _parts(owner: str | None) -> list[str] | None:
    kind, _, rest = (owner or "").partition(":")
    parts = rest.split("/")
    return parts if kind == "dag" and len(parts) == 4 else None


def of_this_process() -> str:
    """The owner name of a command: host, pid and the process's start, so that a reused pid is not mistaken for it."""
    return f"cli:{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_dead(owner: str) -> bool:
    """Whether ``owner`` is a process of this machine that is surely gone."""
    kind, _, rest = owner.partition(":")
    host, _, process = rest.partition(":")
    pid, _, started = process.partition(":")
    if kind != "cli" or host != socket.gethostname() or not pid.isdecimal():
        return False
    return _started(int(pid)) != started


def is_held(lease: Mapping[str, Any]) -> bool:
    """Whether somebody who may be alive holds a lease, as the ledger's ``status`` tells of it."""
    return bool(lease["held"]) and not is_dead(lease["owner"])


def _started(pid: int) -> str:
    """The process's start in clock ticks since boot, empty if there is none (or no /proc to ask)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
