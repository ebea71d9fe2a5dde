"""Redis server for tests: one process on a free loopback port, with its own directory and password."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller


class RedisServer:
    """Started by :meth:`__enter__`; it dies when the thread that started it ends, so start it from the main thread."""

    def __init__(self) -> None:
        self._password = secrets.token_hex(8)
        self._home = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The address of its first database, as Celery wants it."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        """Start the server and wait until it answers."""
        self._home = Path(tempfile.mkdtemp(prefix="ckpt-redis-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self._home,
            "requirepass": self._password,
            "save": '""',
            "appendonly": "no",
        }
        conf = self._home / "redis.conf"
        conf.touch(0o600)
        conf.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                killed_with_caller(["redis-server", str(conf)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server and remove its directory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)

    def _wait(self, seconds: float = 30.0) -> None:
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(100):  # that it wants a password
                        return
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Redis did not start:\n{(self._home / 'log').read_text()}") from None
                time.sleep(0.03)
