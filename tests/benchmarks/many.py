"""Measure many pipelines on one machine: a folder of 300 files, 50 runs at once, one ledger for all.

``python -m tests.benchmarks.many [--pipelines 50] [--files 300] [--seconds 60]``. Writes ``build/bench/many.json``, and
ends with 1 if a check failed, which is then in ``failures``.

- ``files``: CPU time and memory of parsing a folder, in the DAG processor and when a task starts
- ``ledger``: 50 runs at once on PostgreSQL and on SQLite (``many_ledger.py``)
- ``pipelines``: 50 pipelines with 1,000 new rows each, triggered at once, with each executor of a real Airflow, a pool
  of a few slots and one standing driver, after a first round that creates tables and receipts. Measured are the seconds
  from the first trigger to the end of the last run, of each task, and of each task's wait for a slot; and the memory of
  the executor's processes (with those of tasks) and of the driver
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.assurance import is_whole
from tests.benchmarks import many_files, many_ledger
from tests.benchmarks.rounds import publish, say
from tests.capacity_figures import EXECUTORS, PARTS
from tests.services.fleet import Fleet, summary_of
from tests.services.postgres import LARGE_WAL, PostgresServer
from tests.services.redis import RedisServer

RESULT = Path("build/bench/many.json")
SHOWN = ("cores", "load", *PARTS, "failures")
SLOTS = 4
ROWS = 1000
LOCK_WAIT_P99_MS = 100.0
_SMALL = 10
"""Runs at once on the ledger, where only a few pipelines are measured."""


class Memory:
    """The largest memory of an executor's processes and of the driver while runs are served.

    :param service: the service of Airflow that starts the tasks
    :ivar executor: MiB of all processes below the service, without pages shared with others
    :ivar driver: MiB of the whole driver
    """

    def __init__(self, fleet: Fleet, service: str) -> None:
        self._fleet = fleet
        self._service = psutil.Process(fleet.airflow.pid(service))
        self.executor = self.driver = 0.0

    def look(self) -> None:
        """Take a sample."""
        for state in self._fleet.warm.states():
            self.driver = max(self.driver, state["memory_bytes"] / (1 << 20))
        found = 0.0
        for process in self._service.children(recursive=True):
            with suppress(psutil.Error):
                found += process.memory_full_info().uss / (1 << 20)
        self.executor = max(self.executor, found)


def pipelines(home: Path, count: int) -> dict[str, Any]:
    """Measure ``count`` pipelines at once, on each executor in turn.

    :raises RuntimeError: if one was not replicated by the one warm Spark, or something is left afterwards
    """
    found: dict[str, Any] = {"at_once": count, "pool_slots": SLOTS, "rows": ROWS}
    each = dict.fromkeys(EXECUTORS, count)
    env = {"AIRFLOW__CELERY__WORKER_CONCURRENCY": str(SLOTS)}
    with PostgresServer({**LARGE_WAL, "max_connections": "300"}) as server, RedisServer() as redis:
        fleet = Fleet(home, server, each, slots=SLOTS, broker=redis.url, env=env)
        with fleet:
            for executor, names in fleet.pipelines.items():
                for _ in range(2):
                    found[executor] = _round(fleet, names, EXECUTORS[executor])
            if (drivers := len(fleet.warm.states())) != 1:
                raise RuntimeError(f"{drivers} drivers instead of one")
            if left := fleet.leave():
                raise RuntimeError(f"left at the end: {left}")
    return found


def _round(fleet: Fleet, names: Sequence[str], service: str) -> dict[str, Any]:
    fleet.add_rows(names, ROWS)
    memory = Memory(fleet, service)
    started = time.monotonic()
    runs = fleet.begin(names)
    fleet.await_end(runs, 1800, memory.look)
    took = time.monotonic() - started
    if wrong := fleet.differences(names) + fleet.cold(runs):
        raise RuntimeError(f"not replicated, or by a Spark of their own: {wrong}")
    seconds = fleet.seconds(runs)
    found = {
        "seconds": round(took, 1),
        "task_seconds": summary_of(seconds["task"]),
        "waiting_seconds": summary_of(seconds["waiting"]),
        "executor_mib": round(memory.executor, 1),
        "driver_mib": round(memory.driver, 1),
    }
    say(f"  {found}")
    return found


def _failures(ledger: dict[str, Any], *, timed: bool) -> list[str]:
    """The limits that the ledger on PostgreSQL did not keep.

    :param timed: whether durations count
    """
    found = [*ledger["errors"]]
    if ledger["waits_between_pipelines"]:
        found.append(f"{ledger['waits_between_pipelines']} waits for a lock of another pipeline")
    if ledger["deadlocks"]:
        found.append(f"{ledger['deadlocks']} deadlocks")
    if timed and (wait := ledger["lock_wait_ms"]["p99"]) > LOCK_WAIT_P99_MS:
        found.append(f"{wait} ms of waiting for a lock at the 99th percentile")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.many", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=50, help="runs at once on each executor (default: 50)")
    parser.add_argument("--files", type=int, default=300, help="YAML files in a folder (default: 300)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the load on each kind of ledger (default: 60)")
    options = parser.parse_args(arguments)
    whole = is_whole(parser, options)
    at_once = many_ledger.RUNS if whole else _SMALL
    result: dict[str, Any] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as name:
        home = Path(name)
        say(f"{options.files} files")
        result["files"] = many_files.measure(home / "files", options.files, 5)
        say("the ledger")
        result["ledger"] = {
            "postgres": many_ledger.on_postgres(at_once, options.seconds),
            "sqlite": many_ledger.on_sqlite(at_once, options.seconds),
        }
        say(f"{options.pipelines} pipelines at once")
        result["pipelines"] = pipelines(home / "fleet", options.pipelines)
    result["failures"] = _failures(result["ledger"]["postgres"], timed=whole)
    for told in PARTS.values():
        say(told(result))
    publish(result, RESULT, SHOWN, target="bench-many" if whole else "")
    return int(bool(result["failures"]))


if __name__ == "__main__":
    sys.exit(main())
