"""Measure the ledger's commands, and show that their cost does not grow with the length of the history.

``python -m tests.benchmarks.ledger [--receipts 10000000]``. On PostgreSQL and on SQLite, two ledgers are measured in
turn: one with 10,000 range receipts, the other with as many as the option says, none of which can be merged. Each cycle
plans, begins and settles batches whose outcomes contain receipts; the settlement counts, and the duration of the whole
cycle is reported beside it. First there is a recovery window, as by default, so that each batch has a receipt of its
own; then there is none. Then status, quick audit and recovery plan are measured, and the space that a million batches
take after the window has passed them. Writes ``build/bench/ledger.json``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, SourcePartition
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.recovery import ReceiptedRange, UnreadRecords
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.assurance import is_whole, record
from tests.benchmarks.history import PIPELINE, SPAN, fill, size
from tests.services.postgres import LARGE_WAL, PostgresServer

RESULT = Path("build/bench/ledger.json")
SMALL = 10_000
CYCLES = {1: 100, 10: 80, 100: 40, 1000: 25}
"""Counted cycles by the number of batches in each; two more warm up."""
READS = 15
_READ = ("status", "audit_quick", "recovery_plan")
WINDOW = timedelta(days=7)
GROWTH = 100_000
"""Batches delivered to see what room they take."""

Seconds = dict[str, list[float]]


class Subject:
    """One ledger under one pipeline, with a clock of its own.

    :param receipts: how many lie behind it
    """

    def __init__(self, url: str, receipts: int) -> None:
        migrate.upgrade(url, create=True)
        self.now = datetime.now(UTC)
        self.window: timedelta | None = WINDOW
        with Ledger.open(url) as ledger:
            self.lease = ledger.acquire(PIPELINE, "bench", timedelta(days=1))
            partitions = {SourcePartition(name, name): 0 for name in ("t", "u")}
            ledger.start_partitions(self.lease, partitions, now=self.now)
        started = time.monotonic()
        if receipts:
            fill(url, receipts)
        self.filled = time.monotonic() - started
        self.ledger = Ledger.open(url)
        self.end = self.ledger.partitions(PIPELINE)["t"].partition.committed

    def cycle(self, count: int) -> tuple[float, float]:
        """Plan, begin and settle so many batches; seconds of the settlement, and of all."""
        starts = range(self.end, self.end + SPAN * count, SPAN)
        plan = Plan([PlannedBatch("t", Range(start, start + SPAN), SPAN) for start in starts])
        self.end += SPAN * count
        started = time.perf_counter()
        planned = self.ledger.plan(self.lease, plan, now=self.now)
        batches = self.ledger.begin(self.lease, [batch.key for batch in planned], now=self.now, run="bench")
        sent = time.perf_counter()
        outcomes = [self._outcome(batch) for batch in batches]
        told = time.perf_counter()
        settlement = self.ledger.settle(
            self.lease, outcomes, now=self.now, policy=DeliveryPolicy(), deviation=lambda: 0.0, window=self.window
        )
        settled = time.perf_counter()
        if settlement.checkpoint["t"] != self.end or len(settlement.acked) != count:
            raise RuntimeError(f"the checkpoint is {settlement.checkpoint}, and not {self.end}")
        return settled - told, settled - told + sent - started

    def _outcome(self, batch: Batch) -> Outcome:
        receipt = Receipt(
            batch.key, batch.range, Verdict.DELIVERED, self.lease.epoch, batch.attempts, Counts(SPAN, SPAN), self.now
        )
        return Outcome(batch.key, batch.attempts, AttemptOutcome.DELIVERED, receipt)

    def reads(self) -> dict[str, Callable[[], object]]:
        """Measure the queries of users and of recovery."""

        def shown(_partition: str, receipted_ranges: Sequence[ReceiptedRange]) -> list[UnreadRecords | None]:
            return [None] * len(receipted_ranges)

        return {
            "status": lambda: self.ledger.status(PIPELINE),
            "audit_quick": lambda: self.ledger.audit(PIPELINE, quick=True),
            "recovery_plan": lambda: self.ledger.recovery_plan(PIPELINE, settle_lag=timedelta(0), compare=shown),
        }


@dataclass
class Measured:
    """Seconds of both ledgers, measured in turn.

    :param settle: of one settlement, by batches and ledger
    :param cycle: of plan, begin and settle
    """

    settle: Seconds = field(default_factory=dict)
    cycle: Seconds = field(default_factory=dict)
    reads: Seconds = field(default_factory=dict)

    def cycles(self, subjects: dict[str, Subject]) -> None:
        """Measure settlements of every size on each ledger in turn."""
        for count, cycles in CYCLES.items():
            for number in range(cycles + 2):
                for name, subject in _in_turn(subjects, number):
                    settle, cycle = subject.cycle(count)
                    if number >= 2:
                        self.settle.setdefault(f"{name} {count}", []).append(settle)
                        self.cycle.setdefault(f"{name} {count}", []).append(cycle)

    def ask(self, subjects: dict[str, Subject]) -> None:
        """Measure the reads on each ledger in turn."""
        for number in range(READS + 2):
            for name, subject in _in_turn(subjects, number):
                for what, read in subject.reads().items():
                    started = time.perf_counter()
                    read()
                    if number >= 2:
                        self.reads.setdefault(f"{name} {what}", []).append(time.perf_counter() - started)

    def result(self) -> dict[str, Any]:
        """Medians, and what they say of each other."""
        settle, cycle = _medians(self.settle), _medians(self.cycle)
        ratios = {str(n): round(settle[f"big {n}"] / settle[f"small {n}"], 3) for n in CYCLES}
        return {
            "settlements_per_second": {str(n): round(n / settle[f"small {n}"]) for n in CYCLES},
            "settlements_per_second_10m": {str(n): round(n / settle[f"big {n}"]) for n in CYCLES},
            "cycles_per_second": {str(n): round(n / cycle[f"small {n}"]) for n in CYCLES},
            "cost_ratio_10m_vs_10k": max(ratios.values()),
            "cost_ratios": ratios,
            "settle_ms": {name: round(1000 * value, 3) for name, value in settle.items()},
        }

    def read_result(self) -> dict[str, Any]:
        """Medians of the reads, and their ratios."""
        reads = _medians(self.reads)
        ratios = {f"{name}_ratio": round(reads[f"big {name}"] / reads[f"small {name}"], 3) for name in _READ}
        return {**ratios, "read_ms": {name: round(1000 * value, 3) for name, value in reads.items()}}


def _in_turn(subjects: dict[str, Subject], number: int) -> Iterator[tuple[str, Subject]]:
    items = list(subjects.items())
    yield from items if number % 2 else reversed(items)


def _medians(seconds: Seconds) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure(new: Callable[[], str], receipts: int) -> dict[str, Any]:
    """Everything on one kind of database.

    :param new: gives the address of a ledger to be
    """
    subjects = {"small": Subject(new(), SMALL), "big": Subject(new(), receipts)}
    _say(f"  {receipts:,} receipts made in {subjects['big'].filled:.0f} s")
    result: dict[str, Any] = {}
    reads = Measured()
    reads.ask(subjects)
    for window in (WINDOW, None):
        measured = Measured()
        for subject in subjects.values():
            subject.window = window
        measured.cycles(subjects)
        found = measured.result()
        _say(f"  {'with' if window else 'without'} a window: {found['settlements_per_second']} settled a second")
        result |= found if window else {"without_window": found}
    result |= reads.read_result()
    for subject in subjects.values():
        subject.ledger.close()
    return {**result, **growth(new()), "fill_seconds": round(subjects["big"].filled, 1)}


def growth(url: str) -> dict[str, Any]:
    """Measure the disk space of delivered batches: within the window, after it, and after garbage collection."""
    subject = Subject(url, 0)
    empty = size(url)
    for _ in range(GROWTH // 1000):
        subject.cycle(1000)
        subject.now += timedelta(seconds=30)
    within = size(url)
    subject.now += 2 * WINDOW
    subject.ledger.reconcile(subject.lease, [], now=subject.now, window=WINDOW)
    after = size(url)
    subject.ledger.garbage_collect(PIPELINE, keep=timedelta(days=1), actor="bench", now=subject.now)
    collected = size(url)
    subject.ledger.close()
    million = 1_000_000 / GROWTH
    return {
        "bytes_per_million_batches": round((after - empty) * million),
        "bytes_per_million_batches_within_window": round((within - empty) * million),
        "bytes_per_million_batches_after_gc": round((collected - empty) * million),
        "bytes_empty": empty,
    }


@contextmanager
def _postgres() -> Iterator[Callable[[], str]]:
    with PostgresServer(LARGE_WAL) as server:
        yield server.new_database


@contextmanager
def _sqlite() -> Iterator[Callable[[], str]]:
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as directory:
        numbers = iter(range(100))
        yield lambda: f"sqlite:///{directory}/{next(numbers)}.db"


def run(receipts: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Measure and write the result."""
    places = {"postgres": _postgres, "sqlite": _sqlite}
    result: dict[str, Any] = {"receipts": receipts, "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    for kind in kinds:
        _say(kind)
        started = time.monotonic()
        with places[kind]() as new:
            result[kind] = measure(new, receipts)
        result[kind]["seconds"] = round(time.monotonic() - started)
        gc.collect()
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return result


def report(result: dict[str, Any], kinds: Sequence[str]) -> None:
    """Print what was found beside what was to be reached."""
    for kind in kinds:
        found = result[kind]
        rows: list[tuple[str, float, str, float]] = [
            ("settled a second, by 1000", found["settlements_per_second"]["1000"], "≥", 20_000),
            ("cost, many receipts to few", found["cost_ratio_10m_vs_10k"], "≤", 1.2),
            *((f"{name}, the same", found[f"{name}_ratio"], "≤", 2.0) for name in _READ),
        ]
        for what, value, sign, limit in rows:
            reached = value >= limit if sign == "≥" else value <= limit
            print(f"{kind:9} {what:28} {value:>10,} {sign} {limit:>6,}  {'reached' if reached else 'MISSED'}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ledger", description=__doc__)
    parser.add_argument("--receipts", type=int, default=10_000_000, help="receipts behind the big ledger")
    parser.add_argument("--only", choices=("postgres", "sqlite"), help="just this kind of database")
    options = parser.parse_args(arguments)
    kinds = (options.only,) if options.only else ("postgres", "sqlite")
    result = run(options.receipts, kinds)
    if is_whole(parser, options):
        names = ("settlements_per_second", "cost_ratio_10m_vs_10k")
        record("bench-ledger", {kind: {name: result[kind][name] for name in names} for kind in kinds})
    report(result, kinds)
    _say(f"details: {RESULT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
