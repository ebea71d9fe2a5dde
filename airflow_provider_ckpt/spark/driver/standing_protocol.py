"""Protocol of the Unix socket of a standing driver, on which clients ask it to serve a run, to stop, or for its status.

A client sends its request as one line of JSON. To ``stop`` and ``status``, the driver answers with one line of JSON.
For ``run``, which names a run directory, the connection stays open as long as the run:

* The driver sends :data:`BELL` to accept the run.
* The client sends :data:`BELL` to confirm; only then does the driver read the run directory. A client that had to wait
  too long does not confirm, since it has turned to another driver.
* Afterwards the driver sends :data:`BELL` after each reply in the run directory, the client after each wave.
* Either process closes the connection when it is done with the run.
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
"""Byte on a run's connection: it accepts or confirms a run, later announces a new line in a file of the directory."""
SOCKET = "socket"
"""Name of the socket in the driver's directory while the driver accepts runs."""

DRAINING = "socket.draining"
"""Name of the socket once the driver accepts no more runs; it ends when those in progress have ended."""

LOCK = "lock"
"""Name of a file in the driver's directory that the driver keeps locked as long as it lives."""

STARTING = "starting"
"""Name of an empty file that exists in the driver's directory from the driver's start until it accepts runs."""

LOG = "log"
"""Name of the file in the driver's directory with the output of the driver and of Spark."""

_CREDENTIALS = struct.Struct("3i")
_LONGEST_LINE = 1 << 20
_CHUNK = 1 << 16


def short_path(directory: int, name: str) -> str:
    """Return a short path, such as ``/proc/self/fd/7/socket``, of a file in a directory that this process has open.

    It is the address of a Unix socket, which is limited to about 100 bytes.

    :param directory: file descriptor of the directory
    :param name: path of the file relative to the directory
    """
    return f"/proc/self/fd/{directory}/{name}"


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the pid and the user id of the process at the other end of a connection, as the kernel reports them."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the process at the other end of a connection runs as the user of this process."""
    return peer(connection)[1] == os.geteuid()


def send_line(connection: socket.socket, document: Mapping[str, Any]) -> None:
    """Send a JSON object to the other end of a connection, as one line.

    :param connection: the connection
    :param document: the JSON object
    """
    connection.sendall(json.dumps(document).encode() + b"\n")


def read_line(connection: socket.socket) -> dict[str, Any]:
    """Read one line from the other end of a connection, and return the JSON object in it.

    :param connection: the connection
    :raises ConnectionError: if the other end closes the connection before the end of the line, or the line is longer
        than 1 MiB
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
    """Open a directory, without following a symbolic link, and return its file descriptor.

    :param path: path of the directory
    :raises OSError: if the directory cannot be opened, or the path is a symbolic link
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
