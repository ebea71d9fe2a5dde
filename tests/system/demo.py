"""Run the demo (``make demo``): 336,776 flights through a real Airflow into a Delta table, checked with plain Python.

Three DAG runs: twelve files with damaged lines, no new file, a 13th file. Writes ``build/demo/summary.json``; the exit
status is 0 only if all counts are right. All processes of the demo have ended when it ends.
"""

from __future__ import annotations

import base64
import json
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.services import processes
from tests.services.airflow import AirflowServices
from tests.services.delta import read_delta
from tests.system import demo_report, flights

ROOT = Path(__file__).resolve().parents[2]
DAG, GROUP = "flights", "replicate"
_LAST_TASKS = ("retry", "route")
_LOG_LINES = 40
_RUN_SECONDS = 600
_GRACE_SECONDS = 5
_OF_THE_SERVICES = ("_PORT", "_SECRET", "_SECRET_KEY", "_SERVER_URL")


class DemoError(Exception):
    """The demo did not show what it should; the message says what."""


@dataclass(frozen=True)
class Places:
    """The paths of a demo."""

    build: Path

    @property
    def files(self) -> Path:
        """The directory that grows."""
        return self.build / "flights"

    @property
    def target(self) -> Path:
        """The Delta table."""
        return self.build / "tables" / "flights"

    @property
    def dead_letters(self) -> Path:
        """The dead letters."""
        return self.build / "tables" / "flights.dead_letters"

    @property
    def environment(self) -> Path:
        """The script that a person sources."""
        return self.build / "env.sh"


def main() -> int:
    """Run the demo in ``build/demo``, anew each time.

    :returns: exit status
    """
    console = Console(highlight=False)
    places = Places(ROOT / "build" / "demo")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    try:
        show(console, places)
    except (DemoError, RuntimeError, TimeoutError) as error:
        console.print(f"\nThe demo failed: {error}", style="bold red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left running.", style="bold")
        return 130
    console.print(f"\nEvery sum holds. {time.monotonic() - started:.0f} seconds in all.", style="bold green")
    return 0


def show(console: Console, places: Places) -> None:
    """Prepare, run three times, check, report.

    :raises DemoError: if a run fails or a sum does not hold
    """
    shutil.rmtree(places.build, ignore_errors=True)
    with _step(console, "writing the flights of 2013 as JSON lines"):
        year = flights.load()
        files = flights.write_months(year, places.files)
        damaged = flights.damage(files)
        first = flights.expect(files)
    kinds = ", ".join(f"{count} {kind}" for kind, count in damaged.items())
    size = sum(file.stat().st_size for file in files) / 1e6
    console.print(f"  {first.read:,} lines in {len(files)} files, {size:.0f} MB")
    console.print(f"  {sum(damaged.values())} of them damaged: {kinds}")

    token = processes.new_token()
    services = AirflowServices(
        places.build / "airflow",
        ROOT / "dags",
        {"FLIGHTS_FILES": str(places.files), "FLIGHTS_TABLE": str(places.target), processes.TOKEN: token},
    )
    runs: dict[str, dict[str, Any]] = {}
    with _running(console, services, token):
        runs["12 files"] = _run(console, services, "the 12 files")
        runs["nothing new"] = _run(console, services, "the same again: nothing is new")
        thirteenth = flights.write_next_year(year, places.files)
        runs["a 13th file"] = _run(console, services, f"and now {thirteenth.name}")
    second = flights.expect([thirteenth])

    demo_report.write_environment(places.environment, _environment(services))
    summary = {"runs": list(runs.values()), "target_rows": _count_rows(places.target)}
    (places.build / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    dead_letters = demo_report.read_letters(places.dead_letters)
    console.print()
    console.print(demo_report.table_of(runs))
    console.print(f"{summary['target_rows']:,} rows in the Delta table.\n")
    demo_report.show_letters(console, places.dead_letters, dead_letters)
    demo_report.show_next(console, places.environment, places.files, places.target)
    _check(summary, [first, flights.Expected(), second], damaged, dead_letters, places.target)


def _run(console: Console, services: AirflowServices, what: str) -> dict[str, Any]:
    """One DAG run, told as it goes on.

    :returns: its summary, as ``airflow ckpt run -o json`` prints one
    :raises DemoError: if it fails; carries the failing task's last log lines
    """
    with _step(console, f"DAG run: {what}"):
        run_id = services.trigger(DAG)
        deadline = time.monotonic() + _RUN_SECONDS
        seen: dict[str, str | None] = {}
        while (state := services.state(DAG, run_id)) not in ("success", "failed"):
            seen = _tell(console, services.task_states(DAG, run_id), seen)
            if time.monotonic() > deadline:
                raise DemoError(f"the DAG run did not end within {_RUN_SECONDS} s")
            time.sleep(0.3)
        states = services.task_states(DAG, run_id)
        _tell(console, states, seen)
    failed = [task for task, ended in states.items() if ended in ("failed", "upstream_failed")]
    if state == "failed" or failed:
        raise DemoError(_autopsy(services, run_id, states))
    handed = [
        services.xcom(DAG, run_id, f"{GROUP}.{task}") for task in _LAST_TASKS if states[f"{GROUP}.{task}"] == "success"
    ]
    summary: dict[str, Any] = handed[0]["summary"]
    return {**summary, "seconds": _wall_seconds(services, run_id)}


def _tell(console: Console, states: dict[str, str | None], seen: dict[str, str | None]) -> dict[str, str | None]:
    """Print tasks that began or ended since the last look."""
    for task, state in states.items():
        if state != seen.get(task) and state in ("running", "success", "failed", "skipped"):
            console.print(f"    {task.removeprefix(f'{GROUP}.'):<14} {state}", style="dim")
    return states


def _autopsy(services: AirflowServices, run_id: str, states: dict[str, str | None]) -> str:
    """Return why a DAG run failed: the failing task and the last lines of its log."""
    culprit = next((task for task, state in states.items() if state == "failed"), None)
    if culprit is None:
        return f"the DAG run failed without a failed task: {states}"
    lines = services.task_log(DAG, run_id, culprit).splitlines()
    told = [text for line in lines for text in _plain(line)]
    return "\n  ".join([f"task {culprit} failed. The last lines of its log:", *told[-_LOG_LINES:]])


def _plain(line: str) -> list[str]:
    """A line of a task's log, which is JSON, as a person reads it."""
    try:
        entry = json.loads(line)
    except ValueError:
        return [line]
    if "::" in entry.get("event", ""):
        return []
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
    return [f"{entry.get('level', ''):<8} {entry.get('event', '')}", *errors]


def _wall_seconds(services: AirflowServices, run_id: str) -> float:
    run = services.api("GET", f"/dags/{DAG}/dagRuns/{run_id}")
    begin, end = (datetime.fromisoformat(run[name]) for name in ("start_date", "end_date"))
    return round((end - begin).total_seconds(), 3)


def _count_rows(target: Path) -> int:
    return int(read_delta(target, ["carrier"]).num_rows)


def _check(
    summary: dict[str, Any],
    expected: Sequence[flights.Expected],
    damaged: dict[str, int],
    dead_letters: Sequence[dict[str, Any]],
    target: Path,
) -> None:
    """Compare what the runs said, what is in the table and what was dead-lettered with what plain Python makes of it.

    :raises DemoError: naming every sum that does not hold
    """
    runs = summary["runs"]
    claims: list[tuple[str, Any, Any]] = []
    for number, (run, wanted) in enumerate(zip(runs, expected, strict=True), start=1):
        records = {name: run["records"][name] for name in wanted.records}
        route = ["dead_letters", "done"] if wanted.dead_lettered else ["done"]
        claims += [
            (f"records of run {number}", records, wanted.records),
            (f"route of run {number}", run["route"], route),
            (f"whether run {number} started Spark", run["spark_started"], wanted.read > 0),
            (f"whether run {number} had batches", run["batches"] > 0, wanted.read > 0),
        ]
    rows = read_delta(target, ["carrier", "distance"])
    sent_back: Counter[bytes] = Counter(base64.b64decode(dead_letter["value_base64"]) for dead_letter in dead_letters)
    claims += [
        ("lines read by run 1", runs[0]["records"]["read"], flights.FLIGHTS),
        ("lines that were damaged", sum(damaged.values()), flights.DAMAGED),
        ("dead letters", len(dead_letters), flights.DAMAGED),
        ("lines in dead letters, byte for byte", sent_back == sum((e.bad_lines for e in expected), Counter()), True),
        ("rows in the table", summary["target_rows"], sum(e.delivered for e in expected)),
        ("miles flown in the table", int(sum(rows.column("distance").to_pylist())), sum(e.miles for e in expected)),
        (
            "rows by carrier",
            Counter(rows.column("carrier").to_pylist()),
            sum((e.carriers for e in expected), Counter()),
        ),
    ]
    wrong = [f"{what}: {found}, not {wanted}" for what, found, wanted in claims if found != wanted]
    if wrong:
        raise DemoError("these sums do not hold:\n  " + "\n  ".join(wrong))


def _environment(services: AirflowServices) -> dict[str, str]:
    """Return the environment of a shell for the demo's Airflow, without ports or secrets of services that ran."""
    mine = {name: value for name, value in services.env.items() if name.startswith(("AIRFLOW", "FLIGHTS_"))}
    return {name: value for name, value in mine.items() if not name.endswith(_OF_THE_SERVICES)}


@contextmanager
def _running(console: Console, services: AirflowServices, token: str) -> Iterator[None]:
    """Airflow, started and in any case ended with all it started; a second Ctrl-C does not interrupt the ending."""
    try:
        with _step(console, "starting Airflow: API server, scheduler, DAG processor"):
            services.start()
        console.print(f"  {services.url}, until the demo ends")
        yield
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        with _step(console, "stopping Airflow"):
            services.stop()
            processes.kill(processes.gone(token, _GRACE_SECONDS))
        signal.signal(signal.SIGINT, before)


@contextmanager
def _step(console: Console, what: str) -> Iterator[None]:
    """Say what is being done, and after it how long it took."""
    started = time.monotonic()
    console.print(f"[bold]{what}[/] …")
    yield
    console.print(f"  {time.monotonic() - started:.1f} s", style="dim")


if __name__ == "__main__":
    sys.exit(main())
