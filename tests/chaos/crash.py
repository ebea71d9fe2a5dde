"""Kills a replication at many moments, runs it again, and counts what was lost or doubled.

``python -m tests.chaos.crash [--moments 20] [--at-once 2]``: 200,000 rows in 100 micro-batches, PostgreSQL to
PostgreSQL, by ``airflow ckpt run`` as a process of its own. At each moment the driver JVM, a Python worker, the task's
process or all of them get SIGKILL; nothing of Spark may be left; a plain re-run must succeed; then table, receipts and
ledger must agree. Writes ``build/crash/summary.json``. The target is slowed by 30 ms a batch (see ``scene.py``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.evidence import Findings, gather, judge
from tests.chaos.moments import Kind, Moment, When, plan
from tests.chaos.scene import BATCHES, ROWS, SOURCE, Act, Scene
from tests.services.postgres import PostgresServer
from tests.services.processes import Process, Role, gone, kill, marked, new_token

SUMMARY = Path("build/crash/summary.json")
_PATIENCE = 240.0
_GONE_SECONDS = 10.0
_PAUSE = 0.004
_TRIES = 3


class MissedError(Exception):
    """The run ended before the moment came."""


@dataclass(slots=True)
class Report:
    """The findings of one crash.

    :param moment: what was killed, and when
    :param killed: what got the signal
    :param receipts: how many batches were committed when the killed run had ended
    :param status: exit status of the killed run; negative: the signal
    :param leftovers: command lines of processes that outlived it
    :param findings: after the re-run
    """

    moment: Moment
    killed: list[str] = field(default_factory=list)
    receipts: int = 0
    status: int = 0
    leftovers: list[str] = field(default_factory=list)
    rerun: dict[str, Any] = field(default_factory=dict)
    findings: Findings = field(default_factory=lambda: Findings(0, 0))
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {**asdict(self), "moment": str(self.moment)}


def crash(scene: Scene, moment: Moment) -> Report:
    """Play a moment; again with a fresh pipeline if the run was over before the moment came."""
    for attempt in range(_TRIES):
        try:
            return _crash(scene, moment)
        except MissedError as missed:
            _say(f"{moment}: missed ({missed})")
            if attempt + 1 == _TRIES:
                return Report(moment, faults=[f"missed {_TRIES} times: {missed}"])
    raise AssertionError("unreachable")


def _crash(scene: Scene, moment: Moment) -> Report:
    started = time.monotonic()
    act = scene.act(moment)
    report = Report(moment)
    if moment.when is When.TAKEOVER:
        _kill_once(act, report, Kind.ALL, lambda _: act.receipts() >= BATCHES * 2 // 5)
        _check_gone(report)
    with act.ledger() as ledger:
        due = _trigger(act, moment, ledger)
        _kill_once(act, report, moment.kind, due)
        _check_gone(report)
        report.receipts = act.receipts()
        _rerun(act, report)
        report.findings = judge(gather(scene.dsn, ledger, act.pipeline, SOURCE, act.target))
        report.faults += report.findings.faults
    report.seconds = round(time.monotonic() - started, 1)
    return report


def _trigger(act: Act, moment: Moment, ledger: Any) -> Callable[[str], bool]:
    """Return a function that tells, given the run's token, whether the moment has come."""

    def roles(token: str) -> set[Role]:
        return {process.role for process in marked(token)}

    conditions: dict[When, Callable[[str], bool]] = {
        When.SECONDS: lambda _: True,
        When.SPARK: lambda token: Role.DRIVER in roles(token),
        When.WORKER: lambda token: Role.WORKER in roles(token),
        When.BATCHES: lambda _: act.receipts() >= moment.amount,
        When.RECEIPTED: lambda _: act.receipts() >= BATCHES,
        When.SETTLED: lambda _: act.committed(ledger) > ROWS,
        When.TAKEOVER: lambda _: act.epoch(ledger) >= 2,
    }
    condition = conditions[moment.when]
    delay = 0.0 if moment.when is When.BATCHES else moment.amount

    def due(token: str) -> bool:
        if not condition(token):
            return False
        time.sleep(delay)
        return True

    return due


def _kill_once(act: Act, report: Report, kind: Kind, due: Callable[[str], bool]) -> None:
    """Start the run, wait for the moment, kill, and wait for the run's end."""
    token = new_token()
    with (act.file.parent / "run.log").open("ab") as log:
        task = act.command.start("run", str(act.file), "-o", "json", token=token, out=subprocess.DEVNULL, log=log)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not due(token):
            if task.poll() is not None or time.monotonic() > deadline:
                raise MissedError(f"the run ended with {task.poll()} before; see {act.file.parent / 'run.log'}")
            time.sleep(_PAUSE)
        report.killed += [_name(process) for process in _kill(kind, task.pid, token)]
        report.status = task.wait(_PATIENCE)
    finally:
        if task.poll() is None:
            task.kill()
            task.wait()
        report.leftovers += [_name(process) for process in _left(token)]


def _kill(kind: Kind, task: int, token: str) -> list[Process]:
    """Send SIGKILL to what the moment names, and say what was hit."""
    found = marked(token)
    wanted = {
        Kind.DRIVER: [process for process in found if process.role is Role.DRIVER],
        Kind.WORKER: [process for process in found if process.role is Role.WORKER][:1],
        Kind.TASK: [process for process in found if process.pid == task],
        Kind.ALL: sorted(found, key=lambda process: process.pid != task),
    }[kind]
    reached = set(kill(wanted))
    if kind is Kind.ALL:
        reached |= set(kill(marked(token)))
    hit = [process for process in wanted if process.pid in reached]
    if not hit:
        raise MissedError(f"there was no {kind} to kill")
    return hit


def _left(token: str) -> list[Process]:
    """Return the processes of the run that outlive it by more than a few seconds, and kill them."""
    left = gone(token, _GONE_SECONDS)
    kill(left)
    return left


def _check_gone(report: Report) -> None:
    if report.leftovers:
        report.faults.append(f"{len(report.leftovers)} processes outlived the run")


def _rerun(act: Act, report: Report) -> None:
    done = act.command.run("run", str(act.file), "-o", "json", seconds=_PATIENCE)
    with (act.file.parent / "run.log").open("a") as log:
        log.write(done.stderr)
    if done.returncode:
        report.faults.append(f"the re-run ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        return
    summary = json.loads(done.stdout)
    report.rerun = {name: summary[name] for name in ("epoch", "batches", "records", "spark_started", "seconds")}


def run(count: int = 20, at_once: int = 2, folder: Path = SUMMARY.parent, seed: int = 1) -> dict[str, Any]:
    """Play all moments and write the summary.

    :param count: how many moments
    :param at_once: how many are played at the same time
    :param folder: where logs and ``summary.json`` go
    :returns: the summary
    """
    started = time.monotonic()
    folder = folder.absolute()
    moments = plan(count, BATCHES, seed)
    with PostgresServer() as server, ThreadPoolExecutor(at_once) as pool:
        scene = Scene(server, folder)
        reports = list(pool.map(lambda moment: _told(scene, moment), moments))
    summary = _summary(reports, time.monotonic() - started)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY.name).write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def _told(scene: Scene, moment: Moment) -> Report:
    report = crash(scene, moment)
    said = "; ".join(report.faults) or "nothing lost, nothing doubled"
    _say(f"{moment}: {report.receipts} of {BATCHES} batches were committed, then re-run: {said} ({report.seconds} s)")
    return report


def _summary(reports: Sequence[Report], seconds: float) -> dict[str, Any]:
    hits = [report for report in reports if report.killed]
    return {
        "moments": len(hits),
        "lost": sum(report.findings.lost for report in reports),
        "doubled": sum(report.findings.doubled for report in reports),
        "kills": {kind.value: sum(report.moment.kind is kind for report in hits) for kind in Kind},
        "faults": {str(report.moment): report.faults for report in reports if report.faults},
        "rows": ROWS,
        "batches": BATCHES,
        "seconds": round(seconds, 1),
        "details": [report.to_json() for report in reports],
    }


def _name(process: Process) -> str:
    return f"{process.role}: {' '.join(process.command)[:120]}"


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, and say by the exit status whether everything balanced."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.crash", description=__doc__)
    parser.add_argument("--moments", type=int, default=20, help="how many moments (default: 20)")
    parser.add_argument("--at-once", type=int, default=2, help="how many at the same time (default: 2)")
    parser.add_argument("--seed", type=int, default=1, help="draws the moments beyond the 20 planned ones")
    options = parser.parse_args(arguments)
    summary = run(options.moments, options.at_once, seed=options.seed)
    brief = {name: summary[name] for name in ("moments", "lost", "doubled", "kills", "faults", "seconds")}
    _say(json.dumps(brief, indent=2))
    _say(f"details: {SUMMARY}")
    return 1 if summary["faults"] or summary["moments"] != options.moments else 0


if __name__ == "__main__":
    sys.exit(main())
