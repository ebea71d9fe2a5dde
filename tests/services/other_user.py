"""Run programs as another user of this machine than the user of the tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

OTHER_USER = 65534
"""Id of the user, ``nobody`` on most systems; it need not have a name."""

_AS_USER = """
import json, os, socket, sys
def become(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
"""
_REACH = """
uid, path = int(sys.argv[1]), sys.argv[2]
become(uid)
def reach():
    if os.path.isdir(path):
        return os.listdir(path)
    if not path.endswith("socket"):
        return len(open(path, "rb").read())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b'{"status": true}\\n')
        return len(connection.recv(100))
try:
    print(json.dumps(reach()))
except OSError as error:
    print(json.dumps(type(error).__name__))
"""
_LISTEN = """
uid, path, asked = int(sys.argv[1]), sys.argv[2], ""
os.chdir(os.path.dirname(path))
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(os.path.basename(path))
    become(uid)
    listener.listen()
    print(json.dumps("ready"), flush=True)
    while asked != "end":
        connection, _ = listener.accept()
        with connection:
            asked = connection.recv(1000).decode()
            print(json.dumps(asked), flush=True)
"""


def reach(path: Path) -> Any:
    """Return what the other user finds at a path, or the name of the error: the names in a directory, the size of a
    file, or the length of a standing driver's answer to a request for its status.
    """
    done = subprocess.run(_command(_REACH, path), capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        pytest.fail(f"run the tests as root, or let sudo work without a password: {done.stderr}")
    return json.loads(done.stdout)


@contextmanager
def offered(path: Path) -> Iterator[list[str]]:
    """In the block, a program of the other user listens at a Unix socket as a driver does; yield a list that has, after
    the block, what its clients have sent.

    :param path: path of the socket, in a directory of any user
    """
    requests: list[str] = []
    process = subprocess.Popen(_command(_LISTEN, path), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not process.stdout.readline():
        pytest.fail("run the tests as root, or let sudo work without a password")
    try:
        yield requests
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)  # the path of a socket has at most 107 bytes
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
            connection.sendall(b"end")
        os.close(directory)
        requests += [json.loads(line) for line in process.stdout]
        assert requests.pop() == "end"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def give(path: Path) -> None:
    """Let a file or directory belong to the other user."""
    if os.geteuid() == 0:
        os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)
    else:
        subprocess.run(["sudo", "-n", "chown", "-h", f"{OTHER_USER}:{OTHER_USER}", path], check=True)


@contextmanager
def opened(*paths: Path, mode: int = 0o755) -> Iterator[None]:
    """In the block, all users may use some directories or sockets, as far as they belong to the user of the tests.

    :param paths: the directories or sockets
    :param mode: their mode in the block
    """
    before = {path: path.stat().st_mode for path in paths if path.stat().st_uid == os.geteuid()}
    try:
        for path in before:
            path.chmod(before[path] | mode)
        yield
    finally:
        for path, found in before.items():
            path.chmod(found)


def _command(program: str, path: Path) -> list[str]:
    command = [sys.executable, "-I", "-c", _AS_USER + program, str(OTHER_USER), str(path)]
    return command if os.geteuid() == 0 else ["sudo", "-n", *command]
