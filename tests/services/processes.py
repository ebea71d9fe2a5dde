"""Find the processes of a command and all their descendants by a token in their environment. Linux only (``/proc``).

A process whose parent has ended still has the token, so processes that a dead command left behind are found.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

TOKEN = "CKPT_TEST_TOKEN"
"""The environment variable that marks a command and all it starts."""

_PROC = Path("/proc")
_TRAINING = "airflow_provider_ckpt.engines.class_archive_training"
"""Module that a run starts in the background, and that is no part of the run."""


_APPLICATIONS = ("driver/app.py", "driver/standing.py")
"""Programs that Spark's JVM starts as applications: that of one run, and that of the ``warm`` engine."""


class Role(StrEnum):
    """The role of a process in a run."""

    TASK = "task"
    DRIVER = "driver"
    DAEMON = "daemon"
    WORKER = "worker"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a run, as it was observed."""

    pid: int
    parent: int
    command: tuple[str, ...]
    role: Role = Role.OTHER


def new_token() -> str:
    """A token that no other command carries."""
    return secrets.token_hex(8)


def marked(token: str) -> list[Process]:
    """Return all living processes that carry the token, with their roles, without the training of the class archive."""
    wanted = f"{TOKEN}={token}".encode()
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            process = _look(entry, wanted)
            if process is not None:
                found[process.pid] = process
    for pid in _family(found, {pid for pid, process in found.items() if _TRAINING in process.command}):
        del found[pid]
    return [Process(item.pid, item.parent, item.command, _role(item, found)) for item in found.values()]


def titled(text: str) -> Process | None:
    """The process that has ``text`` in its command line, and whose parent has not."""
    found = {pid: process for pid, process in _all().items() if any(text in part for part in process.command)}
    return next((process for process in found.values() if process.parent not in found), None)


def below(pid: int) -> list[Process]:
    """Return all living descendants of a process, with their roles."""
    found = _all()
    family = _family(found, {pid})
    return [Process(i.pid, i.parent, i.command, _role(i, found)) for i in found.values() if i.pid in family - {pid}]


def in_session(session: int) -> list[int]:
    """The pids of the living processes of a session."""
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, _, _, owner = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                found += [int(entry.name)] if int(owner) == session and state not in "ZX" else []
    return found


def kill(processes: Iterable[Process], number: signal.Signals = signal.SIGKILL) -> list[int]:
    """Send a signal to each, in order, and after SIGSTOP wait until it has stopped; the pids that were still there."""
    reached = []
    for process in processes:
        with suppress(ProcessLookupError, FileNotFoundError):
            if number is signal.SIGSTOP:
                pause(process.pid)
            else:
                os.kill(process.pid, number)
            reached.append(process.pid)
    return reached


def pause(pid: int, seconds: float = 30.0) -> None:
    """Stop a process with SIGSTOP, and wait until each of its threads has stopped: on a busy machine that takes a
    while, in which the others still answer.

    :param pid: the process
    :param seconds: the longest wait
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while any(_state(thread) not in "TXZ" for thread in (_PROC / str(pid) / "task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} did not stop"
        time.sleep(0.005)


def alive(processes: Iterable[Process]) -> list[Process]:
    """Return the processes that are still alive and the same."""
    living = _all()
    return [process for process in processes if process.pid in living]


def gone(token: str, seconds: float) -> list[Process]:
    """Wait until no process carries the token; those that still live after ``seconds``."""
    deadline = time.monotonic() + seconds
    while left := marked(token):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _family(processes: dict[int, Process], family: set[int]) -> set[int]:
    """Some processes and all that descend from them."""
    while more := {item.pid for item in processes.values() if item.parent in family} - family:
        family |= more
    return family


def _all() -> dict[int, Process]:
    looked = (_look(entry) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return {process.pid: process for process in looked if process is not None}


def _look(entry: Path, wanted: bytes | None = None) -> Process | None:
    try:
        if wanted is not None and wanted not in (entry / "environ").read_bytes().split(b"\0"):
            return None
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        command = tuple((entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
    except OSError:
        return None
    return None if state in "ZX" else Process(int(entry.name), int(parent), command)


def _state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _role(process: Process, others: dict[int, Process]) -> Role:
    """Return the role by command and parent: the JVM starts a Python daemon, and the daemon forks the workers."""
    parent = others.get(process.parent)
    if parent is None:
        return Role.TASK if "ckpt" in process.command else Role.OTHER
    if _is_java(process):
        return Role.DRIVER
    if _is_java(parent):
        return Role.OTHER if any(part.endswith(_APPLICATIONS) for part in process.command) else Role.DAEMON
    return Role.WORKER if parent.parent in others and _is_java(others[parent.parent]) else Role.OTHER


def _is_java(process: Process) -> bool:
    return Path(process.command[0]).name == "java" and any("SparkSubmit" in part for part in process.command)
