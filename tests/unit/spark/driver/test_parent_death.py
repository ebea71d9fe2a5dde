"""A child process that is to die with its parent ends when the parent is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller

_PARENT = """
import subprocess, sys, time
from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller
program = "print('up', flush=True); import time; time.sleep(60)"
child = subprocess.Popen(killed_with_caller([sys.executable, "-c", program]), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_killed_parent_takes_its_child_along() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _lives(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 10
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(child)


def test_it_becomes_the_command_and_keeps_its_process_and_its_end() -> None:
    program = "import os, sys; print(os.getpid()); sys.exit(7)"
    with subprocess.Popen(
        killed_with_caller([sys.executable, "-c", program]), stdout=subprocess.PIPE, text=True
    ) as child:
        said, _ = child.communicate()

    assert (int(said), child.returncode) == (child.pid, 7)


def test_whoever_was_orphaned_before_it_was_tied_ends_at_once() -> None:
    orphan = killed_with_caller([sys.executable, "-c", "print('still here')"])
    orphan[4] = "1"

    found = subprocess.run(orphan, capture_output=True, check=False)

    assert (found.returncode, found.stdout) == (-signal.SIGKILL, b"")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
