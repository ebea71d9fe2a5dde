"""Spark Connect server for tests: one process on loopback, which can be killed and restarted."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
_STARTED = re.compile(r"Spark Connect server started at")


class SparkConnectServer:
    """Started by :meth:`__enter__`; it dies when the thread that started it ends, so start it from the main thread.

    :param conf: Spark's properties
    :param cores: how many tasks run at once
    """

    def __init__(self, conf: Mapping[str, str] | None = None, *, cores: int = 2) -> None:
        self._conf = {
            "spark.master": f"local[{cores}]",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "INFO",
            **(conf or {}),
        }
        self._home = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        """Return the pid of the server's Java process."""
        assert self._process is not None
        return self._process.pid

    @property
    def connection(self) -> str:
        """An Airflow connection to it, as an environment variable holds one."""
        return json.dumps({"conn_type": "spark_connect", "host": "127.0.0.1", "port": self.port})

    @property
    def log(self) -> str:
        """All that it has written."""
        return (self._home / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it listens."""
        package = importlib.util.find_spec("pyspark")
        assert package is not None
        assert package.origin is not None
        spark = Path(package.origin).parent
        before = len(self.log) if (self._home / "server.log").exists() else 0
        conf = {**self._conf, "spark.connect.grpc.binding.port": str(self.port)}
        options = [part for item in conf.items() for part in ("--conf", "=".join(item))]
        with (self._home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                killed_with_caller(
                    [str(spark / "bin" / "spark-submit"), "--class", _CLASS, *options, "spark-internal"]
                ),
                env={**os.environ, **_ENVIRONMENT, "SPARK_HOME": str(spark)},
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 120
        while not _STARTED.search(self.log[before:]):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the Spark Connect server did not start:\n{self.log[before:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it and its Python workers at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="ckpt-connect-"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._home, ignore_errors=True)
