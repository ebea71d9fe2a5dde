"""Ties a process's life to its parent's, so that a killed task leaves no Spark behind. Linux only.

Run as a program, it ties itself to its parent and becomes another program: what Python would do between ``fork`` and
``exec`` for that, as ``preexec_fn``, may wait for a lock for good that another thread held when the process forked.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends.

    :param parent: the pid of the parent that it was started by; by default the present one's
    """
    if sys.platform != "linux":
        return
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def tied(command: Sequence[str]) -> list[str]:
    """The command that runs another one, tied to the thread of this process that starts it."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  # no shell is wanted
