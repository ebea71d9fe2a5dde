"""Database server for tests: a process and its data directory, which can be copied and restored."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

USER = "ckpt"
PASSWORD = "ckpt-test"

_MEMORY = Path("/dev/shm")
_LEAST_MEMORY = 2 << 30
"""Bytes that must be free in memory for a server's data to be put there."""


def memory_directory() -> Path | None:
    """A directory in memory for a server's data; None if there is none, or if it has little room."""
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _LEAST_MEMORY
    return _MEMORY if has_room else None


def free_port() -> int:
    """A port of this machine's loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class DatabaseServer(ABC):
    """One server with its data, made by :meth:`start` and removed by :meth:`stop`.

    The server ends when the thread that started it ends, so start it from the main thread.

    :param in_memory: whether its data are put into memory if there is room, where they are made and dropped faster; a
        server whose process is killed finds them again
    """

    account: ClassVar[str]
    """User as whom the server runs if the tests run as root, under which it would refuse to."""

    in_order: ClassVar[signal.Signals]
    """Signal that ends the server in order."""

    as_a_crash: ClassVar[signal.Signals]
    """Signal that ends the server like a crash."""

    def __init__(self, *, in_memory: bool) -> None:
        self._parent = memory_directory() if in_memory else None
        self._user = pwd.getpwnam(self.account) if os.geteuid() == 0 else None
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.port = 0

    @property
    def log(self) -> str:
        """The server's log so far."""
        return (self._home / "log").read_text(errors="replace")

    @property
    def _home(self) -> Path:
        if self._directory is None:
            raise RuntimeError("the server was not started")
        return self._directory

    @abstractmethod
    def start(self) -> Self:
        """Make the data if there are none yet, start the server and wait until it answers."""

    def stop(self, how: signal.Signals | None = None, *, keep: bool = False) -> None:
        """Stop the server and, unless ``keep``, remove its data.

        :param how: the signal; None for the one that is like a crash
        :param keep: whether to keep the data
        """
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(how or self.as_a_crash)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if not keep and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def back_up(self) -> None:
        """Keep a copy of all data, as they are now."""
        self.stop(self.in_order, keep=True)
        self._copy("data", "backup")
        self.start()

    def restore(self) -> None:
        """Put the copy in place of the data, as a restored backup would be."""
        self._put_back()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _put_back(self) -> None:
        self.stop(keep=True)
        self._copy("backup", "data")

    def _copy(self, source: str, target: str) -> None:
        shutil.rmtree(self._home / target, ignore_errors=True)
        subprocess.run(["cp", "-a", self._home / source, self._home / target], check=True)

    def _make_home(self, kind: str) -> Path:
        """Make the server's directory, and choose its port."""
        self._directory = Path(tempfile.mkdtemp(prefix=f"ckpt-{kind}-", dir=self._parent))
        self.port = free_port()
        if self._user is not None:
            os.chown(self._directory, self._user.pw_uid, self._user.pw_gid)
        return self._directory

    def _launch(self, *command: str | Path) -> None:
        """Start the server's process, which gets :attr:`as_a_crash` when we die.

        ``setpriv`` asks for it: a process that runs as another user would not be tied to us any more if it had been
        before.

        :param command: the server and its arguments
        """
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", self.as_a_crash.name.removeprefix("SIG"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._home,
                **self._credentials(),  # type: ignore[call-overload]
            )

    def _credentials(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
