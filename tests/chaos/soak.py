"""Run a small pipeline again and again on one standing driver, disturb it, and measure whether anything grows.

``python -m tests.chaos.soak [--runs 2000] [--seed N]``: two runs at a time, one of a copy and one with a transform,
each with new rows. Some are cancelled at a random moment. In the last tenth the driver is killed now and then: its runs
continue on a Spark of their own, and later ones start another driver.

Afterwards each target equals its source, every audit is clean, and no run went without a driver unless that was killed.
Memory, file descriptors, threads and processes of the driver, and directories, may not have grown: the median of the
last fifth of a driver's samples is compared with that of its first fifth. Memory counts from 200 samples on, since Java
warms up. Writes ``build/soak/summary.json``; exit status 1 if anything differs or grows.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.assurance import is_whole, record
from tests.services.postgres import PostgresServer
from tests.services.replication import connection_to, make_ledger, orders_pipeline
from tests.services.tables import execute, scalar
from tests.services.warm_spark import WarmSpark, living, session_of

FOLDER = Path("build/soak")
PIPELINES = ("copied", "transformed")
ROWS = 20
"""New rows of a run."""

_COLUMNS = "(id bigint PRIMARY KEY, value text NOT NULL)"
_A_LINE_EVERY = 20.0
_LEAST_SAMPLES = 10
_MEMORY_SAMPLES = 200
_SLACK = {"java_mib": 64, "python_mib": 32, "descriptors": 20, "threads": 15, "processes": 4, "directories": 20}
"""Growth that means nothing, by figure; a tenth of the first median comes on top."""


@dataclass(frozen=True)
class Plan:
    """Numbers of the runs that are disturbed.

    :param runs: number of runs
    :param cancelled: numbers of the runs that are cancelled
    :param kills: numbers of the runs during which the driver is killed
    """

    runs: int
    cancelled: frozenset[int]
    kills: frozenset[int]

    @classmethod
    def draw(cls, runs: int, seed: int) -> Plan:
        """Draw one run in 25 to be cancelled, and one in 200 for a kill; at least one of each."""
        chance = random.Random(seed)
        steady = max(1, runs * 9 // 10)
        cancelled = chance.sample(range(steady), max(1, runs // 25))
        kills = chance.sample(range(steady, runs), min(runs - steady, max(1, runs // 200)))
        return cls(runs, frozenset(cancelled), frozenset(kills))


@dataclass
class Soak:
    """Runs, and what they left.

    :param server: the database server of ledger, sources and targets
    :param warm: the standing drivers
    :param plan: what happens to which run
    :param seed: seed of all random moments
    :ivar counts: number of runs by what became of them
    :ivar faults: what must not be
    :ivar samples: figures of each driver, by its pid, in the order of the runs
    """

    server: PostgresServer
    warm: WarmSpark
    plan: Plan
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    samples: dict[int, list[dict[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._killed_at = -1e9
        self._told = self._started = time.monotonic()
        self._ledger_dsn = self.server.new_database()
        self._dsn = self.server.new_database()
        for name in PIPELINES:
            execute(self._dsn, *(f"CREATE TABLE {name}_{end} {_COLUMNS}" for end in ("source", "target")))

    def run(self) -> None:
        """Make all runs, and compare each target with its source."""
        with make_ledger(self._ledger_dsn) as self._ledger:
            with ThreadPoolExecutor(len(PIPELINES)) as pool:
                for done in [pool.submit(self._run_again_and_again, name) for name in PIPELINES]:
                    done.result()
            for name in PIPELINES:
                self._replicate(name)
                self._compare(name)
        self.seconds = time.monotonic() - self._started
        for pid, samples in self.samples.items():
            self.faults += [f"driver {pid}: {text}" for text in grown(samples)]

    def summary(self) -> dict[str, Any]:
        """Return the figures as a JSON-ready dict."""
        medians = {str(pid): first_and_last(samples) for pid, samples in self.samples.items()}
        return {
            "runs": self.plan.runs,
            **{name: self.counts[name] for name in ("completed", "cancelled", "kills", "cold", "lost_waves")},
            "rows": {name: scalar(self._dsn, f"SELECT count(*) FROM {name}_target") for name in PIPELINES},
            "drivers": {pid: {"samples": len(self.samples[int(pid)]), **found} for pid, found in medians.items()},
            "runs_per_second": round(self.plan.runs / self.seconds, 2),
            "seconds": round(self.seconds),
            "seed": self.seed,
        }

    def _run_again_and_again(self, name: str) -> None:
        chance = random.Random(f"{self.seed} {name}")
        while True:
            with self._lock:
                number, self._next = self._next, self._next + 1
            if number >= self.plan.runs:
                return
            self._add_rows(name)
            self._run_once(name, number, chance)
            self._sample(number)
            self._tell()

    def _add_rows(self, name: str) -> None:
        rows = "SELECT i, md5(i::text) FROM generate_series(%s::bigint, %s::bigint) AS i"
        last = scalar(self._dsn, f"SELECT coalesce(max(id), 0) FROM {name}_source")
        execute(self._dsn, f"INSERT INTO {name}_source {rows}", parameters=[last + 1, last + ROWS])

    def _run_once(self, name: str, number: int, chance: random.Random) -> None:
        """Make a run, with what the plan has for it."""
        from airflow_provider_ckpt.core.errors import EngineError
        from airflow_provider_ckpt.engines.factory import make_engine

        engine: Any = make_engine(self._pipeline(name))
        timers = []
        if number in self.plan.cancelled:
            timers.append(threading.Timer(chance.uniform(0, 0.6), engine.kill))
        if number in self.plan.kills:
            timers.append(threading.Timer(chance.uniform(0, 0.6), self._kill))
        began = time.monotonic()
        for timer in timers:
            timer.start()
        try:
            summary = self._replicate(name, engine)
        except EngineError as error:
            if number not in self.plan.cancelled:
                self.faults.append(f"run {number} of {name}: {error}")
            self.counts["cancelled"] += 1
        else:
            self.counts["completed"] += 1
            self.counts["lost_waves"] += summary.errors.get("Processing", 0)
        for timer in timers:
            timer.join()
        if not engine._is_standing:
            self.counts["cold"] += 1
            if self._killed_at < began - 60:
                self.faults.append(f"run {number} of {name} went without a driver that nobody killed")

    def _kill(self) -> None:
        if self.warm.processes():
            self._killed_at = time.monotonic()
            self.warm.kill()
            self._killed_at = time.monotonic()
            self.counts["kills"] += 1

    def _replicate(self, name: str, engine: Any = None) -> Any:
        from airflow_provider_ckpt.engines.factory import make_engine
        from airflow_provider_ckpt.replication.run.replicate import replicate
        from airflow_provider_ckpt.replication.setup import PipelineContext

        pipeline = self._pipeline(name)
        setup = PipelineContext(pipeline, self._ledger, lambda given: connection_to(self._dsn, given), f"soak {name}")
        return replicate(setup, engine or make_engine(pipeline))

    def _pipeline(self, name: str) -> Any:
        from airflow_provider_ckpt.config.load import build

        document = orders_pipeline(name, source=f"{name}_source", target=f"{name}_target")
        if name == "transformed":
            document["transform"] = {"select": {"id": "id", "value": "upper(value)"}}
        return build(document | {"run": {"engine": "warm"}, "commit_strategy": {"commit_interval": ROWS // 2}})

    def _compare(self, name: str) -> None:
        value = "upper(value)" if name == "transformed" else "value"
        source, target = f"SELECT id, {value} FROM {name}_source", f"SELECT id, value FROM {name}_target"
        for one, other, what in ((source, target, "lost"), (target, source, "in the target alone")):
            found = scalar(self._dsn, f"SELECT count(*) FROM ({one} EXCEPT ALL {other}) AS found")
            if found:
                self.faults.append(f"{name}: {found} rows are {what}")
        if not self._ledger.audit(name)["ok"]:
            self.faults.append(f"{name}: the audit is not clean")

    def _sample(self, number: int) -> None:
        """Measure the driver after some of the runs."""
        if number % max(1, self.plan.runs // 500):
            return
        with suppress(OSError, ValueError):  # the driver was killed meanwhile, or another one replaces it
            pid = self.warm.state()["pid"]
            found = figures(session_of(pid))
            with self._lock:
                self.samples.setdefault(pid, []).append(found)

    def _tell(self) -> None:
        """Print a line now and then."""
        now = time.monotonic()
        with self._lock:
            done = self.counts["completed"] + self.counts["cancelled"]
            if now - self._told < _A_LINE_EVERY and done < self.plan.runs:
                return
            self._told = now
            last = next(reversed(self.samples.values()), [{}])[-1]
        parts = [f"{self.counts[name]} {name.replace('_', ' ')}" for name in ("cancelled", "kills", "cold")]
        parts += [f"{name.replace('_', ' ')} {value}" for name, value in last.items()]
        say(f"{done} of {self.plan.runs} runs, {done / (now - self._started):.2f} a second, {', '.join(parts)}")


def figures(pids: Sequence[int]) -> dict[str, int]:
    """Return memory and numbers of the processes of a driver, and of the directories of all drivers and runs."""
    found = dict.fromkeys(_SLACK, 0)
    for pid in pids:
        process = Path(f"/proc/{pid}")
        with suppress(OSError):  # a Python worker that has ended
            status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            kind = "java_mib" if status["Name"].strip() == "java" else "python_mib"
            found[kind] += int(status.get("VmRSS", "0 kB").split()[0]) >> 10
            found["threads"] += threads(process)
            found["descriptors"] += len(list((process / "fd").iterdir()))
            found["processes"] += 1
    found["directories"] = directories(FOLDER)
    return found


def threads(process: Path) -> int:
    """Return the number of threads of a process, without Spark's two pools of its block manager: at most 100 each,
    which it creates as it needs them.

    :param process: the process's folder below ``/proc``
    """
    found = 0
    for task in (process / "task").iterdir():
        with suppress(OSError):  # the thread has ended
            found += not (task / "comm").read_text(errors="replace").startswith("block-manager-")
    return found


def directories(folder: Path) -> int:
    """Return the number of directories below a folder, without those in which Spark spreads its blocks: at most 64,
    which it creates as it needs them.
    """
    spread = "blockmgr-"
    return sum(len(found) for path, found, _ in os.walk(folder) if not Path(path).name.startswith(spread))


def first_and_last(samples: Sequence[dict[str, int]]) -> dict[str, list[float]]:
    """Return the medians of the first and the last fifth of a driver's samples, by figure."""
    fifth = max(1, len(samples) // 5)
    return {
        name: [statistics.median(sample[name] for sample in part) for part in (samples[:fifth], samples[-fifth:])]
        for name in _SLACK
    }


def grown(samples: Sequence[dict[str, int]]) -> list[str]:
    """Return a phrase for each figure of a driver that has grown; none if there are too few samples to tell."""
    if len(samples) < _LEAST_SAMPLES:
        return []
    return [
        f"{name} grew from {first:g} to {last:g}"
        for name, (first, last) in first_and_last(samples).items()
        if last > first * 1.1 + _SLACK[name] and (not name.endswith("_mib") or len(samples) >= _MEMORY_SAMPLES)
    ]


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print, and say by the exit status whether nothing was lost, doubled or left."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="number of runs (default: 2000)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of all random numbers (default: the time)")
    options = parser.parse_args(arguments)
    say(f"seed {options.seed}")
    folder = FOLDER.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    logging.basicConfig(filename=folder / "runs.log", level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    plan = Plan.draw(options.runs, options.seed)
    settings = {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CKPT__SPARK_HEAD_START": "False",  # its training is no part of what is measured
        "TMPDIR": str(folder / "tmp"),
    }
    with PostgresServer() as server, WarmSpark(folder / "runtime") as warm, warm.found(settings):
        tempfile.tempdir = settings["TMPDIR"]
        soak = Soak(server, warm, plan, options.seed)
        soak.run()
        summary = soak.summary()
        before = warm.processes()
        warm.stop()
        missed = soak.faults + [f"process {pid} is left of a driver" for pid in living(before)]
        missed += [f"{path.name} is left" for path in (folder / "tmp").glob("ckpt-run-*")]
    for name, planned in (("kills", plan.kills), ("cancelled", plan.cancelled)):
        if planned and not summary[name]:
            missed.append(f"no run was met by any of {len(planned)} {name}")
    summary["shortcomings"] = missed
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if is_whole(parser, options):
        record("soak", {name: summary[name] for name in _BRIEF} | {"failures": missed})
    say(json.dumps(summary, indent=2))
    say("\n".join(missed) or "every target equals its source, and nothing has grown")
    return 1 if missed else 0


_BRIEF = ("runs", "cancelled", "kills", "cold", "runs_per_second", "seconds", "seed")

if __name__ == "__main__":
    sys.exit(main())
