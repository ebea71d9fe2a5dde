"""Measure fifty runs at once on one ledger: duration of commands, waits of sessions for locks of others, deadlocks.

Each run is a process with its own pipeline, like a task: it acquires the lease, plans, begins and settles batches, and
releases the lease, again and again, with pauses between the commands. A second session in each process renews the
lease, reads the pipeline's state and requests the lease, as the background thread, users and waiting runs do.
PostgreSQL itself reports every wait for a lock of a millisecond or more, and which session holds the lock. The duration
of a wait depends on other load of the machine. But sessions of two different pipelines must never wait for each other.
"""

from __future__ import annotations

import multiprocessing
import random
import re
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, SourcePartition
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch
from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.ledger.types import Lease
from tests.services.fleet import summary_of
from tests.services.postgres import LARGE_WAL, PostgresServer, sqlalchemy_url
from tests.services.tables import scalar

RUNS = 50
BATCHES, ROWS, WAVES = 2, 500, 3
PAUSE, PAUSE_BESIDE = 1.0, 4.0
"""Seconds between two commands of a run at most, and between those beside it.

So fifty runs do some hundred commands a second, which is more than tasks on two cores can do.
"""

_SETTINGS = {**LARGE_WAL, "max_connections": "400", "log_lock_waits": "on", "deadlock_timeout": "1ms"}
_WAIT = re.compile(r"process \d+ acquired \w+ on .* after ([\d.]+) ms")
_HOLDERS = re.compile(
    r"process (\d+) still waiting for \w+ on .*\n.*DETAIL:  Process(?:es)? holding the lock: ([\d, ]+)\."
)


class Run:
    """One pipeline's runs, one after the other.

    :param ledger: the ledger, opened by this process
    :param number: number of the pipeline
    :ivar seconds: of each command
    """

    def __init__(self, ledger: Ledger, number: int) -> None:
        self.ledger = ledger
        self.name = f"pipeline_{number:03}"
        self.seconds: list[float] = []
        self._random = random.Random(number)

    def do(self, command: Callable[[], Any]) -> Any:
        """Carry out one command, and pause."""
        started = time.perf_counter()
        found = command()
        self.seconds.append(time.perf_counter() - started)
        time.sleep(self._random.random() * PAUSE)
        return found

    def whole(self) -> None:
        """Do what a run with a few waves does."""
        ledger = self.ledger
        lease: Lease = self.do(lambda: ledger.acquire(self.name, "run", timedelta(minutes=5)))
        self.do(lambda: ledger.declare(lease, {"name": self.name}))
        self.do(lambda: ledger.start_partitions(lease, {SourcePartition("t", "t"): 0}))
        self.do(lambda: ledger.reconcile(lease, [], now=datetime.now(UTC)))
        beside = threading.Event()
        watching = threading.Thread(target=self._beside, args=(lease, beside))
        watching.start()
        try:
            for _ in range(WAVES):
                self._wave(lease)
        finally:
            beside.set()
            watching.join()
        self.do(lambda: ledger.release(lease))

    def _wave(self, lease: Lease) -> None:
        start = self.ledger.partitions(self.name)["t"].partition.planned_end
        ranges = [Range(start + at * ROWS, start + (at + 1) * ROWS) for at in range(BATCHES)]
        plan = Plan([PlannedBatch("t", part, ROWS) for part in ranges])
        planned = self.do(lambda: self.ledger.plan(lease, plan))
        keys = [batch.key for batch in planned]
        begun = self.do(lambda: self.ledger.begin(lease, keys, now=datetime.now(UTC), run="run"))
        outcomes = [_outcome(batch, lease) for batch in begun]
        settled = self.do(
            lambda: self.ledger.settle(
                lease, outcomes, now=datetime.now(UTC), policy=DeliveryPolicy(), deviation=lambda: 0.0
            )
        )
        assert settled.checkpoint["t"] == ranges[-1].end

    def _beside(self, lease: Lease, ended: threading.Event) -> None:
        """Do what other sessions do with the pipeline meanwhile."""
        while not ended.wait(self._random.random() * PAUSE_BESIDE):
            self.ledger.renew(lease)
            self.ledger.status(self.name)
            with suppress(LeaseBusyError):
                self.ledger.acquire(self.name, "another", timedelta(minutes=5))


def _outcome(batch: Batch, lease: Lease) -> Outcome:
    counts, now = Counts(ROWS, ROWS), datetime.now(UTC)
    receipt = Receipt(batch.key, batch.range, Verdict.DELIVERED, lease.epoch, batch.attempts, counts, now)
    return Outcome(batch.key, batch.attempts, AttemptOutcome.DELIVERED, receipt)


@dataclass(frozen=True, slots=True)
class Told:
    """The report of one process: seconds of its commands, whole runs, its error if any, and pids of its sessions."""

    number: int
    seconds: list[float]
    runs: int
    error: str
    sessions: list[int]


def _work(url: str, number: int, until: float, told: Queue[Told]) -> None:
    runs, error = 0, ""
    sessions: list[int] = []
    if url.startswith("postgresql"):
        sa.event.listen(sa.Pool, "connect", lambda connection, _: sessions.append(connection.info.backend_pid))
    with Ledger.open(url) as ledger:
        run = Run(ledger, number)
        try:
            while time.time() < until:
                run.whole()
                runs += 1
        except Exception as found:  # noqa: BLE001  # the parent process reports it
            error = f"{type(found).__name__}: {found}"
        told.put(Told(number, run.seconds, runs, error, sessions))


def at_once(url: str, runs: int, seconds: float) -> tuple[dict[str, Any], dict[int, int]]:
    """Let so many processes run their pipelines for so long.

    :param url: of the ledger, which has all its tables
    :return: how many whole runs ended, commands a second, milliseconds of a command, and errors; and the number of the
        pipeline by the pid of a session
    """
    context = multiprocessing.get_context("fork")
    told: Queue[Told] = context.Queue()
    until = time.time() + seconds
    workers = [context.Process(target=_work, args=(url, number, until, told)) for number in range(runs)]
    started = time.monotonic()
    for worker in workers:
        worker.start()
    found = [told.get(timeout=seconds + 240) for _ in workers]
    for worker in workers:
        worker.join()
    took = time.monotonic() - started
    commands = [1000 * value for item in found for value in item.seconds]
    figures = {
        "at_once": runs,
        "runs": sum(item.runs for item in found),
        "commands": len(commands),
        "commands_per_second": round(len(commands) / took, 1),
        "command_ms": summary_of(commands),
        "errors": sorted({item.error for item in found if item.error}),
    }
    return figures, {pid: item.number for item in found for pid in item.sessions}


def on_postgres(runs: int, seconds: float) -> dict[str, Any]:
    """Measure on PostgreSQL, which reports waits for locks and deadlocks."""
    with PostgresServer(_SETTINGS) as server:
        dsn = server.new_database()
        migrate.upgrade(sqlalchemy_url(dsn))
        found, pipelines = at_once(sqlalchemy_url(dsn), runs, seconds)
        waits = [float(wait) for wait in _WAIT.findall(server.log)]
        between = sum(
            pipelines.get(int(waiting)) != pipelines.get(int(holder))
            for waiting, holders in _HOLDERS.findall(server.log)
            for holder in holders.split(",")
        )
        deadlocks = scalar(dsn, "SELECT sum(deadlocks)::int FROM pg_stat_database")
    return {
        **found,
        "lock_waits": len(waits),
        "lock_wait_ms": summary_of(waits or [0.0]),
        "waits_between_pipelines": between,
        "deadlocks": deadlocks,
    }


@contextmanager
def _file() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as directory:
        yield f"sqlite:///{Path(directory)}/ledger.db"


def on_sqlite(runs: int, seconds: float) -> dict[str, Any]:
    """Measure on SQLite, where one process writes at a time."""
    with _file() as url:
        migrate.upgrade(url, create=True)
        return {**at_once(url, runs, seconds)[0], "version": sqlite3.sqlite_version}
