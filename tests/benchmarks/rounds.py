"""Time several ways to do one thing in turn, round by round, so that changes of the machine's speed affect all."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.assurance import record

if TYPE_CHECKING:
    from tests.services.airflow import AirflowServices


@dataclass
class Rounds:
    """The measured values.

    :param seconds: by way, one number a counted round
    :param steps: by way, the seconds of each step of our own runs
    :param counted: whether this round counts; the first warms up and does not, unless it is the only one
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    steps: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    counted: bool = False

    def each(self, number: int, measure: Callable[[], None]) -> None:
        """Carry out a round that warms up and then ``number`` that count; of 0, the one that warms up counts."""
        for at in range(number + 1):
            self.counted = at > 0 or not number
            say(f"round {at} of {number}" if at else "warm-up")
            measure()

    def time(self, way: str, move: Callable[[], float | None]) -> None:
        """Do it one way and note how long it took, or the seconds that it returns."""
        started = time.monotonic()
        seconds = move()
        self.took(way, time.monotonic() - started if seconds is None else seconds)

    def took(self, way: str, seconds: float) -> None:
        """Note how long it took one way."""
        say(f"  {way}: {seconds:.2f} s{'' if self.counted else ' (warm-up)'}")
        if self.counted:
            self.seconds.setdefault(way, []).append(seconds)

    def note(self, way: str, steps: Mapping[str, float]) -> None:
        """Remember how long the steps of a run took."""
        if self.counted:
            self.steps.setdefault(way, []).append(steps)

    @property
    def medians(self) -> dict[str, float]:
        """The median of each way, in seconds."""
        return {way: round(statistics.median(measured), 3) for way, measured in self.seconds.items()}

    def details(self, rounds: int) -> dict[str, Any]:
        """The single values behind the medians."""
        return {
            "rounds": rounds,
            "cores": os.cpu_count(),
            "measured": {way: [round(value, 3) for value in measured] for way, measured in self.seconds.items()},
            "steps": {
                way: {step: round(statistics.median(run.get(step, 0.0) for run in runs), 3) for step in runs[0]}
                for way, runs in self.steps.items()
            },
        }


def task_seconds(airflow: AirflowServices, dag_id: str, run_id: str, task_id: str | None = None) -> float:
    """Return the seconds from start to end of a task, or of a DAG run, as the API reports them.

    :param task_id: the task; None for the DAG run
    """
    path = f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}"
    found = airflow.api("GET", path if task_id is None else f"{path}/taskInstances/{quote(task_id)}")
    start, end = (datetime.fromisoformat(found[name]) for name in ("start_date", "end_date"))
    return (end - start).total_seconds()


def publish(
    result: Mapping[str, Any],
    file: Path,
    shown: Sequence[str],
    *,
    target: str = "",
    recorded: Sequence[str] | None = None,
) -> None:
    """Write a result to its file and print the part of it that people look for first.

    :param file: where all of the result goes
    :param shown: the names of what is printed
    :param target: the make target whose record this is; empty for a run that was not whole
    :param recorded: the names of what the record holds; None for what is printed
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({name: result[name] for name in shown}, indent=2))
    if target:
        record(target, {name: result[name] for name in (shown if recorded is None else recorded)})
    say(f"details: {file}")


def say(line: str) -> None:
    """Progress, for people."""
    print(line, file=sys.stderr, flush=True)
