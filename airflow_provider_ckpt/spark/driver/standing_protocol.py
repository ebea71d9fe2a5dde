"""Protocol of the Unix socket between a standing driver and its clients: runs, and commands that ask for its status.

A client sends one line of JSON, the request: ``run`` (serve a run directory), ``status`` or ``stop``. The last two get
one line of JSON. The connection of a run stays open as long as the run: the driver sends :data:`BELL` when it accepts
the run and after each reply in the run directory, the client after each wave. Whoever goes away closes the connection.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BELL = b"."
"""Byte by which each side of a run's connection tells the other that a file in the run directory has a new line."""
SOCKET = "socket"
"""Name of the socket in the driver's directory, as long as the driver accepts runs."""

DRAINING = "socket.draining"
"""Name of the socket once the driver accepts no more runs and ends after those that it has."""

LOCK = "lock"
"""Name of a file in the driver's directory that is locked as long as the driver lives."""

LOG = "log"
"""Name of the file with the driver's and Spark's output in the driver's directory."""

_CREDENTIALS = struct.Struct("3i")
_LONGEST_LINE = 1 << 20
_CHUNK = 1 << 16


def short_path(directory: int, name: str) -> str:
    """Return a short path of a file in an open directory, since a socket's address has room for about 100 bytes only.

    :param directory: file descriptor of the directory
    :param name: path relative to the directory
    """
    return f"/proc/self/fd/{directory}/{name}"


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user id of the process at the other end, as the kernel knows them."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the process at the other end runs as this process's user."""
    return peer(connection)[1] == os.geteuid()


def send_line(connection: socket.socket, document: Mapping[str, Any]) -> None:
    """Send a document to the other end as a line of JSON."""
    connection.sendall(json.dumps(document).encode() + b"\n")


def read_line(connection: socket.socket) -> dict[str, Any]:
    """Return the next line of JSON that the other end sends.

    :raises ConnectionError: if the other end closes the connection, or sends too long a line
    """
    line = b""
    while not line.endswith(b"\n"):
        more = connection.recv(_CHUNK)
        if not more or len(line) > _LONGEST_LINE:
            raise ConnectionError("the other end of the socket sent no line")
        line += more
    found: dict[str, Any] = json.loads(line)
    return found


def directory_of(path: Path) -> int:
    """Open a directory, but not through a symbolic link, and return its file descriptor."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
