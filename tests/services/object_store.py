"""Object store for tests with one bucket: a process on a free loopback port, with its data in a temporary directory."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller
from tests.services.processes import pause

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

BUCKET = "ckpt"


class ObjectStoreServer(ABC):
    """One store, started by :meth:`__enter__` and removed by :meth:`__exit__`.

    The server stops when the thread that started it ends, so start it from the main thread.
    """

    name: ClassVar[str]
    """Name of the server, for test ids."""

    scheme: ClassVar[str]
    """Scheme of the store's URLs."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(20)
        self.port = 0
        self.home = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """The server's log so far."""
        return (self.home / "log").read_text(errors="replace")

    @property
    def client_port(self) -> int:
        """The port that clients use, and to which a proxy leads."""
        return self.port

    def url(self, path: str = "") -> str:
        """Return the URL of an object, prefix or pattern, as a pipeline names it."""
        return f"{self.scheme}://{BUCKET}/{path}"

    @abstractmethod
    def connection(self, port: int | None = None) -> Connection:
        """Return the connection with which a pipeline reaches the store.

        :param port: port of a proxy that leads to the store; None for the store itself
        """

    def airflow_connection(self, port: int | None = None) -> str:
        """Return the same connection as JSON, for an environment variable ``AIRFLOW_CONN_…``.

        :param port: as for :meth:`connection`
        """
        connection = self.connection(port)
        fields = ("host", "port", "login", "password", "schema", "extra")
        values = {name: getattr(connection, name) for name in fields}
        return json.dumps({"conn_type": connection.type, **{name: value for name, value in values.items() if value}})

    @abstractmethod
    def client(self, port: int | None = None, *, retries: int = 3) -> Client:
        """Return a client for the bucket, with which a test arranges and looks.

        :param port: as for :meth:`connection`
        :param retries: how often the client repeats a request by itself
        """

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Store objects: their content by key."""
        import obstore

        client = self.client()
        for key, data in objects.items():
            obstore.put(client, key, data)

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """Return the content of all objects below a prefix, by key."""
        import obstore

        client = self.client()
        return {key: bytes(obstore.get(client, key).bytes()) for key in self.keys(prefix)}

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects below a prefix, in order."""
        import obstore

        return sorted(item["path"] for page in obstore.list(self.client(), prefix or None) for item in page)

    def clear(self, prefix: str) -> None:
        """Delete all objects below a prefix."""
        import obstore

        keys = self.keys(prefix)
        if keys:
            obstore.delete(self.client(), keys)

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                killed_with_caller([str(part) for part in self._command()]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.home,
                env={**os.environ, **self._environment()},
            )
        self._wait()
        return self

    def kill(self) -> None:
        """Kill the server; :meth:`start` brings it back, with its objects if it keeps them in files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the server until :meth:`resume`."""
        pause(self.pid)

    def resume(self) -> None:
        """Let a stopped server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix=f"ckpt-{self.name}-"))
        self.port = _free_port()
        try:
            self.start()
            self._create_bucket()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """Return program and arguments of the server."""

    def _environment(self) -> Mapping[str, str]:
        """Return further variables of the server's environment."""
        return {}

    @abstractmethod
    def _create_bucket(self) -> None:
        """Create the bucket."""

    def _wait(self, seconds: float = 60.0) -> None:
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} did not start:\n{self.log}") from None
                time.sleep(0.03)


def client_settings(retries: int) -> dict[str, Any]:
    """Return settings for clients of a server that speaks plain HTTP.

    :param retries: how often a client repeats a request by itself
    """
    return {"client_options": {"allow_http": True, "timeout": "30s"}, "retry_config": {"max_retries": retries}}


def installed(program: str) -> Path:
    """Return the path of a file that stores.sh has put into the user's cache.

    :param program: path in the cache's directory
    :raises RuntimeError: if it was not installed; says how
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(cache) / "airflow-provider-ckpt" / program
    if not found.exists():
        raise RuntimeError(f"{found} is not there: run make stores")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
