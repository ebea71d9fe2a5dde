"""Spark standalone cluster for tests: a master and some workers, each a process on loopback."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller

_ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_NO_DAEMONIZE": "1",
}


class SparkCluster:
    """Started by :meth:`__enter__`; its workers have one core each.

    It dies when the thread that started it ends, so start it from the main thread.

    :param workers: how many
    """

    def __init__(self, workers: int = 2) -> None:
        self._workers = workers
        self._home = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def executors(self) -> list[list[int]]:
        """Return for each worker the pids of its executors."""
        return [_children(process.pid, "CoarseGrainedExecutorBackend") for process in self._processes[1:]]

    def applications(self) -> list[set[str]]:
        """Return for each worker the names of the applications that had an executor of it."""
        homes = [self._home / f"worker-{number}" for number in range(self._workers)]
        return [{item.name for item in home.iterdir()} if home.is_dir() else set() for home in homes]

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="ckpt-spark-"))
        self._start("master", "deploy.master.Master", "--port", "0", "--webui-port", "0")
        self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
        for number in range(self._workers):
            name = f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            self._start(name, "deploy.worker.Worker", *size, "--work-dir", str(self._home / name), self.master)
        for number in range(self._workers):
            self._said(f"worker-{number}", r"(Successfully registered) with master")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start(self, name: str, what: str, *arguments: str) -> None:
        package = importlib.util.find_spec("pyspark")
        assert package is not None
        assert package.origin is not None
        spark = Path(package.origin).parent
        with (self._home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                killed_with_caller(
                    [str(spark / "bin" / "spark-class"), f"org.apache.spark.{what}", "--host", "127.0.0.1", *arguments]
                ),
                env={**os.environ, **_ENVIRONMENT, "SPARK_HOME": str(spark)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def _said(self, name: str, pattern: str, seconds: float = 90.0) -> str:
        """Wait for a line of a process's output, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            text = (self._home / f"{name}.log").read_text(errors="replace")
            found = re.search(pattern, text)
            if found:
                return found[1]
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster's {name} did not start:\n{text}")
            time.sleep(0.1)


def _children(parent: int, needle: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                ppid = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if ppid == parent and needle in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
    return found
