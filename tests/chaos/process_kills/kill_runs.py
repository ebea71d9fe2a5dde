"""Kill a replication at many moments, run it again, and count records that were lost or duplicated.

200,000 rows in 100 micro-batches are copied from PostgreSQL to PostgreSQL by ``airflow ckpt run`` in a separate
process. At each moment the driver's JVM, a Python worker, the task's process or all of them get SIGKILL. Then no
process of Spark may be left, a further run must succeed, and table, receipts and ledger must agree. The target is
slowed down by 30 ms per batch (see ``command_runs.py``).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.evidence import Findings, gather, judge
from tests.chaos.process_kills.command_runs import BATCHES, ROWS, SOURCE, CommandRun, CommandRuns
from tests.chaos.process_kills.kill_times import KillTime, Kind, When, plan
from tests.services.postgres import PostgresServer
from tests.services.processes import Process, Role, gone, kill, marked, new_token

_PATIENCE = 240.0
_GONE_SECONDS = 10.0
_PAUSE = 0.004
_TRIES = 3


class MissedError(Exception):
    """The run ended before the moment came."""


@dataclass(slots=True)
class Report:
    """The findings of one crash.

    :param kill_time: what was killed, and when
    :param killed: what got the signal
    :param receipts: how many batches were committed when the killed run had ended
    :param status: exit status of the killed run; negative: the signal
    :param leftovers: command lines of processes that outlived it
    :param findings: after the re-run
    """

    kill_time: KillTime
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
        return {**asdict(self), "moment": str(self.kill_time)}


def crash(command_runs: CommandRuns, kill_time: KillTime) -> Report:
    """Kill a run at a planned moment; repeat with a new pipeline if the run ended before that moment."""
    for attempt in range(_TRIES):
        try:
            return _crash(command_runs, kill_time)
        except MissedError as missed:
            _say(f"{kill_time}: missed ({missed})")
            if attempt + 1 == _TRIES:
                return Report(kill_time, faults=[f"missed {_TRIES} times: {missed}"])
    raise AssertionError("unreachable")


def _crash(command_runs: CommandRuns, kill_time: KillTime) -> Report:
    started = time.monotonic()
    command_run = command_runs.command_run(kill_time)
    report = Report(kill_time)
    if kill_time.when is When.TAKEOVER:
        _kill_once(command_run, report, Kind.ALL, lambda _: command_run.receipts() >= BATCHES * 2 // 5)
        _check_gone(report)
    with command_run.ledger() as ledger:
        due = _trigger(command_run, kill_time, ledger)
        _kill_once(command_run, report, kill_time.kind, due)
        _check_gone(report)
        report.receipts = command_run.receipts()
        _rerun(command_run, report)
        report.findings = judge(gather(command_runs.dsn, ledger, command_run.pipeline, SOURCE, command_run.target))
        report.faults += report.findings.faults
    report.seconds = round(time.monotonic() - started, 1)
    return report


def _trigger(command_run: CommandRun, kill_time: KillTime, ledger: Any) -> Callable[[str], bool]:
    """Return a function that tells, given the run's token, whether the moment has come."""

    def roles(token: str) -> set[Role]:
        return {process.role for process in marked(token)}

    conditions: dict[When, Callable[[str], bool]] = {
        When.SECONDS: lambda _: True,
        When.SPARK: lambda token: Role.DRIVER in roles(token),
        When.WORKER: lambda token: Role.WORKER in roles(token),
        When.BATCHES: lambda _: command_run.receipts() >= kill_time.amount,
        When.RECEIPTED: lambda _: command_run.receipts() >= BATCHES,
        When.SETTLED: lambda _: command_run.committed(ledger) > ROWS,
        When.TAKEOVER: lambda _: command_run.epoch(ledger) >= 2,
    }
    condition = conditions[kill_time.when]
    delay = 0.0 if kill_time.when is When.BATCHES else kill_time.amount

    def due(token: str) -> bool:
        if not condition(token):
            return False
        time.sleep(delay)
        return True

    return due


def _kill_once(command_run: CommandRun, report: Report, kind: Kind, due: Callable[[str], bool]) -> None:
    """Start the run, wait for the moment, kill, and wait for the run's end."""
    token = new_token()
    with (command_run.file.parent / "run.log").open("ab") as log:
        task = command_run.command.start(
            "run", str(command_run.file), "-o", "json", token=token, out=subprocess.DEVNULL, log=log
        )
    try:
        deadline = time.monotonic() + _PATIENCE
        while not due(token):
            if task.poll() is not None or time.monotonic() > deadline:
                raise MissedError(f"the run ended with {task.poll()} before; see {command_run.file.parent / 'run.log'}")
            time.sleep(_PAUSE)
        report.killed += [_name(process) for process in _kill(kind, task.pid, token)]
        report.status = task.wait(_PATIENCE)
    finally:
        if task.poll() is None:
            task.kill()
            task.wait()
        report.leftovers += [_name(process) for process in _left(token)]


def _kill(kind: Kind, task: int, token: str) -> list[Process]:
    """Send SIGKILL to the planned process, and return what was killed."""
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


def _rerun(command_run: CommandRun, report: Report) -> None:
    done = command_run.command.run("run", str(command_run.file), "-o", "json", seconds=_PATIENCE)
    with (command_run.file.parent / "run.log").open("a") as log:
        log.write(done.stderr)
    if done.returncode:
        report.faults.append(f"the re-run ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        return
    summary = json.loads(done.stdout)
    report.rerun = {name: summary[name] for name in ("epoch", "batches", "records", "spark_started", "seconds")}


def run(count: int, folder: Path, *, at_once: int = 2, seed: int = 1) -> dict[str, Any]:
    """Kill a run at each planned moment.

    :param count: number of moments
    :param folder: folder of the logs, made if it does not exist
    :param at_once: number of runs at the same time
    :param seed: draws the moments beyond the twenty planned ones
    :return: the summary, as JSON values
    """
    started = time.monotonic()
    moments = plan(count, BATCHES, seed)
    with PostgresServer() as server, ThreadPoolExecutor(at_once) as pool:
        command_runs = CommandRuns(server, folder)
        reports = list(pool.map(lambda kill_time: _told(command_runs, kill_time), moments))
    return _summary(reports, time.monotonic() - started)


def _told(command_runs: CommandRuns, kill_time: KillTime) -> Report:
    report = crash(command_runs, kill_time)
    said = "; ".join(report.faults) or "nothing lost, nothing doubled"
    _say(
        f"{kill_time}: {report.receipts} of {BATCHES} batches were committed, then re-run: {said} ({report.seconds} s)"
    )
    return report


def _summary(reports: Sequence[Report], seconds: float) -> dict[str, Any]:
    hits = [report for report in reports if report.killed]
    return {
        "moments": len(hits),
        "lost": sum(report.findings.lost for report in reports),
        "doubled": sum(report.findings.doubled for report in reports),
        "kills": {kind.value: sum(report.kill_time.kind is kind for report in hits) for kind in Kind},
        "faults": {str(report.kill_time): report.faults for report in reports if report.faults},
        "rows": ROWS,
        "batches": BATCHES,
        "seconds": round(seconds, 1),
        "details": [report.to_json() for report in reports],
    }


def _name(process: Process) -> str:
    return f"{process.role}: {' '.join(process.command)[:120]}"


def _say(line: str) -> None:
    print(line, flush=True)
