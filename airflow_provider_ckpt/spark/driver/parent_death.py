"""Kill a process when its parent ends, so that a killed task leaves no Spark running. Linux only.

Run as a program, this module asks the kernel to kill its process when the parent ends, and then replaces itself with
another program (``exec``), which keeps this setting. ``preexec_fn`` of ``subprocess`` is no alternative: it runs Python
code between ``fork`` and ``exec``, and that code may wait forever for a lock that another thread held at the fork.
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

    On other systems than Linux, nothing is done.

    :param parent: pid of the process that started this one, by default the current parent's. If that process has
        already ended, so that the current parent has another pid, this process kills itself at once
    """
    if sys.platform != "linux":
        return
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def killed_with_caller(command: Sequence[str]) -> list[str]:
    """Return a command line that runs ``command`` in a process that the kernel kills when its parent thread ends.

    :param command: program and arguments
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  # no shell is wanted
