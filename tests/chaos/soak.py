"""Run ten pipelines again and again on a standing driver, inject faults, and check that nothing is lost or grows.

``python -m tests.chaos.soak [--runs 2000] [--seed N]``: three runs at a time, each with new records, in processes that
execute one run after the other. Some runs are cancelled as ``on_kill`` does, and some of their processes are killed.
Python workers of the driver, their daemon, and the driver itself are killed at random moments
(``warm_runs/strikes.py``).

Afterwards each target has each record of its source once, or the record's dead letter; in each receipt, read =
delivered + filtered + dead-lettered; and every audit finds no violation. No run may have been without a standing driver
unless the driver was killed, and no run may have lost a wave without an injected fault. The memory of a driver must not
grow over the second half of its runs, nor its numbers of file descriptors, threads, processes and directories
(``warm_runs/growth.py``). After ``airflow ckpt spark stop`` no process, directory or socket may be left. Writes
``build/soak/summary.json``; the exit status is 1 if any check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.assurance import is_whole, record
from tests.chaos.warm_runs.growth import figures, first_and_last, grown, live_heap, memory, second_half
from tests.chaos.warm_runs.pipelines import KINDS, DatabaseServer, GrowingPipeline
from tests.chaos.warm_runs.run_process import RunProcess
from tests.chaos.warm_runs.strikes import LATEST, Plan, Strike, drivers, strike_daemon, strike_driver, strike_lane
from tests.services.command import CkptCommand
from tests.services.processes import TOKEN, gone, kill, new_token
from tests.services.warm_spark import WarmSpark, session_of

FOLDER = Path("build/soak")
AT_ONCE = 3
"""Number of runs at a time."""

_A_LINE_EVERY = 20.0
_COLD_SECONDS = 120.0
"""Seconds after the kill of a driver within which a run may have begun that went on with a Spark of its own."""

_GONE_SECONDS = 20.0
_GLANCE = 0.02
_LAST_RUNS = 5
_SAMPLES = 500
_HEAPS = 80
"""Number of samples of the figures, and of Java's live heap, which takes a full collection."""


@dataclass
class Soak:
    """Runs, and what they left.

    :param servers: the database server of ledger, sources and targets
    :param warm: the standing drivers
    :param plan: what happens to which run
    :param seed: seed of all random moments
    :param environment: environment variables of the processes that make runs
    :ivar counts: number of runs by what became of them
    :ivar faults: what must not be
    :ivar samples: figures of each driver, by pid of its Java, in the order of the runs
    """

    servers: DatabaseServer
    warm: WarmSpark
    plan: Plan
    seed: int
    environment: Mapping[str, str]
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    samples: dict[int, list[dict[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._killed_at = -1e9
        self._told = self._started = time.monotonic()
        self._log = FOLDER.absolute() / "runs.log"
        self._idle: queue.Queue[GrowingPipeline] = queue.Queue()
        self._pipelines = [
            GrowingPipeline(self.servers, name, random.Random(f"{self.seed} {name} records")) for name in KINDS
        ]
        for pipeline in self._pipelines:
            self._idle.put(pipeline)

    def run(self) -> None:
        """Make all runs, and account for all records."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(self._run_again_and_again) for _ in range(AT_ONCE)]:
                done.result()
        self.seconds = time.monotonic() - self._started
        for pid, samples in self.samples.items():
            self.faults += [f"driver {pid}: {text}" for text in grown(samples)]
        allowed = self.counts[Strike.LANE] + AT_ONCE * (self.counts[Strike.DAEMON] + self.counts[Strike.DRIVER])
        if self.counts["lost_waves"] > allowed:
            self.faults.append(f"{self.counts['lost_waves']} waves were lost, and strikes explain {allowed}")
        for strike in Strike:
            if not self.counts[strike]:
                self.faults.append(f"{strike.replace('_', ' ')}: none of {self.plan.planned(strike)} strikes hit")
        self._finish()

    def summary(self) -> dict[str, Any]:
        """Return the figures as a JSON-ready dict."""
        return {
            "runs": self.plan.runs,
            "pipelines": len(self._pipelines),
            **{name: self.counts[name] for name in ("completed", *Strike, "cold", "lost_waves")},
            "records": {pipeline.name: len(pipeline.records) for pipeline in self._pipelines},
            "lost": self.counts["lost"],
            "doubled": self.counts["doubled"],
            "drivers": {str(pid): told_of(samples) for pid, samples in self.samples.items()},
            "runs_per_second": round(self.plan.runs / self.seconds, 2),
            "seconds": round(self.seconds),
            "seed": self.seed,
        }

    def _run_again_and_again(self) -> None:
        process = RunProcess(self.environment, self._log)
        try:
            while True:
                with self._lock:
                    number, self._next = self._next, self._next + 1
                if number >= self.plan.runs:
                    return
                pipeline = self._idle.get()
                pipeline.grow()
                told = self._run(process, pipeline, number)
                if told is None:
                    process.close()
                    process = RunProcess(self.environment, self._log)
                self._idle.put(pipeline)
                self._sample(number)
                self._tell()
        finally:
            process.close()

    def _run(self, process: RunProcess, pipeline: GrowingPipeline, number: int) -> dict[str, Any] | None:
        """Make a run, with what the plan has for it; return what became of it, None if its process was killed."""
        chance = random.Random(f"{self.seed} {number}")
        strike, moment = self.plan.strikes.get(number), chance.uniform(0, LATEST)
        ended = threading.Event()
        striking = threading.Thread(target=self._strike, args=(strike, moment, ended, process, chance))
        began = time.monotonic()
        striking.start()
        told = process.run(pipeline.run_spec, moment if strike is Strike.CANCEL else None)
        ended.set()
        striking.join()
        self._judge(pipeline.name, number, strike, told, began)
        return told

    def _strike(
        self, strike: Strike | None, moment: float, ended: threading.Event, process: RunProcess, chance: random.Random
    ) -> None:
        """Strike at a moment of a run; where nothing is there to be hit, as soon as something is.

        :param strike: what to do
        :param moment: seconds after which to do it
        :param ended: set when the run has ended
        :param process: the run's process
        :param chance: draws what is hit
        """
        if ended.wait(moment):
            return
        runtime = self.warm.directory
        if strike is Strike.RUN:
            process.kill()
        strikes: Mapping[Strike, Callable[[], bool]] = {
            Strike.LANE: lambda: strike_lane(runtime, chance),
            Strike.DAEMON: lambda: strike_daemon(runtime, chance),
            Strike.DRIVER: lambda: self._strike_driver(runtime, chance),
        }
        while strike is not None and strike in strikes and not ended.is_set():
            if strikes[strike]():
                with self._lock:
                    self.counts[strike] += 1
                return
            ended.wait(_GLANCE)

    def _strike_driver(self, runtime: Path, chance: random.Random) -> bool:
        before = self._killed_at
        self._killed_at = time.monotonic()  # a run may notice it before it is over
        if strike_driver(runtime, chance):
            return True
        self._killed_at = before
        return False

    def _judge(
        self, name: str, number: int, strike: Strike | None, told: Mapping[str, Any] | None, began: float
    ) -> None:
        """Count a run, and note what must not be.

        :param name: name of the pipeline
        :param number: number of the run
        :param strike: what was planned for the run
        :param told: what its process says of it; None if that was killed
        :param began: time of its beginning
        """
        what = f"run {number} of {name}"
        with self._lock:
            if told is None:
                self.counts[Strike.RUN] += 1
                if strike is not Strike.RUN:
                    self.faults.append(f"{what}: its process ended by itself, see {self._log}")
                return
            self.counts["lost_waves"] += told["lost_waves"]
            if told["error"] or told["stranger"]:
                self.counts[Strike.CANCEL] += 1
                if strike is not Strike.CANCEL or told["stranger"]:
                    self.faults.append(f"{what} failed: {told['error'] or told['stranger']}")
            else:
                self.counts["completed"] += 1
            if told["cold"]:
                self.counts["cold"] += 1
                if self._killed_at < began - _COLD_SECONDS:
                    self.faults.append(f"{what} went without a driver that nobody killed")

    def _finish(self) -> None:
        """Let each pipeline deliver all that its source holds, and account for it."""
        process = RunProcess(self.environment, self._log)
        try:
            for pipeline in self._pipelines:
                pipeline.grow()
                for _ in range(_LAST_RUNS):
                    told = process.run(pipeline.run_spec)
                    if told is not None and not told["error"]:
                        break
                found = pipeline.balance()
                self.counts["lost"] += found.lost
                self.counts["doubled"] += found.doubled
                self.faults += [f"{pipeline.name}: {text}" for text in found.faults]
        finally:
            process.close()

    def _sample(self, number: int) -> None:
        """Measure the driver after some of the runs."""
        if number % max(1, self.plan.runs // _SAMPLES):
            return
        with self._lock, suppress(OSError, ValueError):  # it was killed meanwhile, or another one replaces it
            (pid,) = drivers(self.warm.directory)
            found = {"run": number, **figures(session_of(pid), FOLDER / "machine")}
            if number % max(1, self.plan.runs // _HEAPS) == 0:
                found["live_heap_mib"] = live_heap(pid)
            self.samples.setdefault(pid, []).append(found)

    def _tell(self) -> None:
        """Print a line now and then."""
        now = time.monotonic()
        with self._lock:
            done = self.counts["completed"] + self.counts[Strike.CANCEL] + self.counts[Strike.RUN]
            if now - self._told < _A_LINE_EVERY and done < self.plan.runs:
                return
            self._told = now
            last = next(reversed(self.samples.values()), [{}])[-1]
        parts = [f"{self.counts[name]} {name.replace('_', ' ')}" for name in (*Strike, "cold", "lost_waves")]
        parts += [f"{name.replace('_', ' ')} {value}" for name, value in last.items() if name != "run"]
        say(f"{done} of {self.plan.runs} runs, {done / (now - self._started):.2f} a second, {', '.join(parts)}")


def stop(home: Path, warm: WarmSpark, token: str) -> list[str]:
    """Call ``airflow ckpt spark stop``, and return a phrase for each thing that is left afterwards.

    :param home: AIRFLOW_HOME of the command, and folder of temporary files
    :param warm: the standing drivers
    :param token: marks the processes of all runs
    """
    done = CkptCommand(home / "airflow", {}).run("spark", "stop")
    left = [f"airflow ckpt spark stop failed: {done.stderr}"] if done.returncode else []
    processes = gone(token, _GONE_SECONDS)
    kill(processes)
    left += [f"process {process.pid} is left: {' '.join(process.command)[:200]}" for process in processes]
    folders = (warm.directory, home / "tmp")
    return left + [f"{path} is left" for folder in folders if folder.is_dir() for path in folder.iterdir()]


def environment(folder: Path, token: str) -> dict[str, str]:
    """Return the environment variables by which runs use folders of the soak's own.

    :param folder: folder for everything
    :param token: marks all processes
    """
    return {
        "AIRFLOW_HOME": str(folder / "machine" / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CKPT__SPARK_HEAD_START_DIRECTORY": "none",  # no absolute path: no class archive is made meanwhile
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder / "data"), os.environ.get("PYTHONPATH")))),
        "TMPDIR": str(folder / "machine" / "tmp"),
        TOKEN: token,
    }


def told_of(samples: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return the figures of a driver: its runs, and what is judged of it if they are enough."""
    half = second_half(samples)
    told = {"first_run": samples[0]["run"], "last_run": samples[-1]["run"], "samples": len(samples)}
    return {**told, **({**first_and_last(half), "memory": memory(half)} if half else {})}


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
    folder, token = FOLDER.absolute(), new_token()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "machine" / "tmp").mkdir(parents=True)
    with DatabaseServer(folder / "data") as servers, WarmSpark(folder / "machine" / "runtime") as warm:
        os.environ |= {
            **environment(folder, token),
            **warm.environment,
        }  # the database server is no part of what is left
        soak = Soak(servers, warm, Plan.draw(options.runs, options.seed), options.seed, os.environ)
        try:
            soak.run()
        finally:
            left = stop(folder / "machine", warm, token)
        summary = {**soak.summary(), "shortcomings": soak.faults + left}
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    if is_whole(parser, options):
        record("soak", {name: summary[name] for name in _BRIEF} | {"failures": summary["shortcomings"]})
    say(json.dumps(summary, indent=2))
    say("\n".join(summary["shortcomings"]) or "each record is where it belongs, once, and nothing has grown or is left")
    return 1 if summary["shortcomings"] else 0


_BRIEF = ("runs", "pipelines", *Strike, "cold", "lost", "doubled", "runs_per_second", "seconds", "seed")

if __name__ == "__main__":
    sys.exit(main())
