"""Process with a warm Spark that executes run specs, until the lease holder, its JVM or both are killed.

The process is started in advance. It reads run specs from standard input, one JSON line each, and reports on standard
output when Spark has started, and the result of each run spec.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.spark.driver import python_daemon
from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller
from tests.chaos.crash_points.run_spec import RunSpec
from tests.services.processes import TOKEN, Process, Role, gone, kill, marked, new_token

PRELOADED = python_daemon.properties(
    ("adbc_driver_postgresql.dbapi", "confluent_kafka.admin", "deltalake", "pyarrow.parquet")
)
"""Spark's properties by which a killed worker soon has a successor."""

_ROOT = Path(__file__).parents[3]
_BOOT = 120.0
_GONE = 20.0


class Part(StrEnum):
    """The part of a driver that gets SIGKILL."""

    LEASE_HOLDER = "lease holder"
    JVM = "jvm"
    ALL = "all"


class Driver:
    """One such process; start it from the main thread, since it dies with the thread that started it.

    :param log: where it writes what Spark says
    """

    def __init__(self, log: Path) -> None:
        self._token = new_token()
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                killed_with_caller([sys.executable, "-m", "tests.chaos.crash_points.driver_process"]),
                cwd=_ROOT,
                env={**os.environ, TOKEN: self._token},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        self._ready = False
        self.busy = False

    @property
    def up(self) -> bool:
        """Return whether the process has started Spark, without waiting."""
        return self.wait(0.0)

    def wait(self, seconds: float = _BOOT) -> bool:
        """Wait until the process has started Spark; return whether it has."""
        if not self._ready:
            self._ready = self._answer(seconds) is not None
        return self._ready

    def give(self, run_spec: RunSpec) -> None:
        """Have the process begin to run a run spec."""
        assert self._process.stdin is not None
        self.busy = True
        self._process.stdin.write(json.dumps(run_spec.to_json()).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return the result of the run spec; None if it is not finished in time, or the process is dead."""
        found = self._answer(seconds)
        self.busy = self.busy and found is None
        return found

    def kill(self, part: Part) -> list[Process]:
        """Send SIGKILL to a part of the driver, and return a description of what was killed."""
        family = marked(self._token)
        holder = [process for process in family if process.pid == self._process.pid]
        java = [process for process in family if process.role is Role.DRIVER]
        wanted = {Part.LEASE_HOLDER: holder, Part.JVM: java, Part.ALL: [*holder, *java]}[part]
        if part is Part.ALL:
            wanted += [process for process in family if process not in wanted]
        reached = set(kill(wanted))
        return [process for process in wanted if process.pid in reached]

    def close(self) -> list[Process]:
        """End the process, and return those of its child processes that lived on long after it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        left = gone(self._token, _GONE)
        kill(left)
        return left

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self._said.get(timeout=seconds) if seconds else self._said.get_nowait()
        except queue.Empty:
            return None

    def _listen(self, said: IO[bytes]) -> None:
        for line in said:
            if line.startswith(b"{"):
                self._said.put(json.loads(line))


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def main() -> None:
    """Run run specs until standard input ends."""
    from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
    from tests.services.spark import local_session

    spark = local_session({"spark.driver.memory": "512m", **PRELOADED})
    _say({"ready": time.time()})
    for line in sys.stdin:
        try:
            summary = RunSpec.from_json(json.loads(line)).run(spark, of_this_process())
        except CkptError as error:
            _say({"error": str(error)})
        else:
            _say({"summary": summary.to_json()})


if __name__ == "__main__":
    main()
