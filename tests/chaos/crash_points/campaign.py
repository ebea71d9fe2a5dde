"""Run a campaign: trials on all pairs of connectors in turn, until enough faults were injected or the time is over."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.crash_points.driver_process import Driver
from tests.chaos.crash_points.faults import Hit, Kind
from tests.chaos.crash_points.pairs import PAIRS, Pair
from tests.chaos.crash_points.refresh_trial import RefreshTrial
from tests.chaos.crash_points.servers import Servers
from tests.chaos.crash_points.trial import Report, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES = "failures"
"""Directory of the evidence of faulty trials, below the campaign's folder."""

_FEWEST, _MOST = 4, 10
"""Strikes in one trial."""

_DRIVERS = 0.065
"""Share of crash points that kill a driver."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a campaign.

    :param points: how many crash points
    :param minutes: how long it may take
    :param seed: draws everything random
    :param drivers: whether drivers are killed, too; each has a Spark of its own
    :param records: how many each trial has
    """

    points: int = 1000
    minutes: float = 90.0
    seed: int = 1
    pairs: Sequence[Pair] = PAIRS
    drivers: bool = True
    records: int = 1000

    @property
    def driver_kills(self) -> int:
        """Return the number of drivers to kill."""
        return max(1, round(self.points * _DRIVERS)) if self.drivers else 0


@dataclass(slots=True)
class Tally:
    """The observations of a campaign so far."""

    reports: list[Report] = field(default_factory=list)

    @property
    def hits(self) -> list[Hit]:
        """All crash points of the campaign so far."""
        return [hit for report in self.reports for hit in report.hits]

    @property
    def driver_kills(self) -> int:
        """Return the number of drivers that were killed."""
        return sum(hit.kind is Kind.DRIVER for hit in self.hits)

    def brief(self) -> str:
        """Return the progress in one line."""
        lost = sum(report.balance.lost for report in self.reports)
        doubled = sum(report.balance.doubled for report in self.reports)
        return f"{self.driver_kills} driver kills, {lost} lost, {doubled} doubled"


class Campaign:
    """Executes trials on one set of servers with one warm Spark session.

    :param spark: a local session, warm or not
    :param folder: for logs and evidence
    :param tell: is told of every trial when it is over, and how many points have hit by then
    """

    def __init__(
        self,
        servers: Servers,
        spark: SparkSession,
        folder: Path,
        plan: Plan,
        *,
        tell: Callable[[Report, Tally], None] = lambda _, __: None,
    ) -> None:
        self._servers = servers
        self._spark = spark
        self._folder = folder
        self._plan = plan
        self._tell = tell
        self._rng = random.Random(plan.seed)
        self._standby: Driver | None = None
        self.tally = Tally()

    def run(self) -> dict[str, Any]:
        """Execute trials until there are enough crash points or the time is over, and return the summary."""
        started = time.monotonic()
        deadline = started + self._plan.minutes * 60
        with ExitStack() as at_last:
            at_last.callback(self._dismiss)
            number = 0
            while time.monotonic() < deadline and (left := self._left()) > 0:
                pair = self._plan.pairs[number % len(self._plan.pairs)]
                number += 1
                trial = (RefreshTrial if pair.refreshes else Trial)(
                    self._servers,
                    self._spark,
                    pair,
                    number,
                    self._plan.seed,
                    self._folder / FAILURES,
                    records=self._plan.records,
                )
                most = min(self._rng.randint(_FEWEST, _MOST), left)
                report = self._play(trial, most)
                self.tally.reports.append(report)
                self._tell(report, self.tally)
        return self._summary(time.monotonic() - started)

    def _left(self) -> int:
        """Return the number of crash points that are still to come, driver kills included."""
        missing = self._plan.driver_kills - self.tally.driver_kills
        return max(self._plan.points - len(self.tally.hits), missing)

    def _play(self, trial: Trial, most: int) -> Report:
        driver = self._driver()
        report = trial.play(max(most - (driver is not None), 1), driver)
        if driver is not None:
            if any(hit.kind is Kind.DRIVER for hit in report.hits):
                driver.close()
                self._standby = None
                self._enlist()
            else:
                self._standby = driver
        return report

    def _driver(self) -> Driver | None:
        """Return a driver with a started Spark if it is time to kill one; None if not. The kills are spread evenly."""
        self._enlist()
        standby, plan, points = self._standby, self._plan, len(self.tally.hits)
        if standby is None:
            return None
        if points >= plan.points:
            return standby if standby.wait() else None
        due = self.tally.driver_kills <= plan.driver_kills * points / plan.points
        return standby if due and standby.up else None

    def _enlist(self) -> None:
        """Start the process of the next driver, which starts its Spark in the background."""
        if self._standby is None and self.tally.driver_kills < self._plan.driver_kills:
            self._standby = Driver(self._folder / "drivers.log")

    def _dismiss(self) -> None:
        if self._standby is not None:
            self._standby.close()

    def _summary(self, seconds: float) -> dict[str, Any]:
        reports = self.tally.reports
        kinds = Counter(hit.kind for hit in self.tally.hits)
        return {
            "crash_points": len(self.tally.hits),
            "lost": sum(report.balance.lost for report in reports),
            "doubled_on_transactional": sum(report.balance.doubled for report in reports),
            "by_pair": {str(pair): _of_pair(reports, pair) for pair in self._plan.pairs},
            "driver_kills": kinds[Kind.DRIVER],
            "worker_kills": kinds[Kind.WORKER] + kinds[Kind.DAEMON],
            "connections": kinds[Kind.RESET] + kinds[Kind.SESSION] + kinds[Kind.ANSWER],
            "servers": kinds[Kind.PAUSE] + kinds[Kind.SERVER],
            "by_kind": {kind.value: kinds[kind] for kind in Kind},
            "trials": len(reports),
            "runs": sum(report.runs for report in reports),
            "errors": dict(sum((Counter(report.errors) for report in reports), Counter())),
            "faults": {report.name: report.faults for report in reports if report.faults},
            "points_asked": self._plan.points,
            "driver_kills_asked": self._plan.driver_kills,
            "seconds": round(seconds, 1),
            "seed": self._plan.seed,
        }


def _of_pair(reports: Sequence[Report], pair: Pair) -> dict[str, Any]:
    own = [report for report in reports if report.pair == str(pair)]
    kinds = Counter(hit.kind.value for report in own for hit in report.hits)
    return {
        "crash_points": sum(kinds.values()),
        "lost": sum(report.balance.lost for report in own),
        "doubled": sum(report.balance.doubled for report in own),
        "trials": len(own),
        "by_kind": dict(kinds),
        "seconds": round(sum(report.seconds for report in own), 1),
    }


def shortcomings(summary: dict[str, Any]) -> list[str]:
    """Return the reasons for which a campaign fails; empty if it passes."""
    said = [f"{name}: {'; '.join(faults)}" for name, faults in summary["faults"].items()]
    said += [f"{summary[name]} {name}" for name in ("lost", "doubled_on_transactional") if summary[name]]
    for name, asked in (("crash_points", "points_asked"), ("driver_kills", "driver_kills_asked")):
        if summary[name] < summary[asked]:
            said.append(f"{summary[name]} {name}, and {summary[asked]} were asked for")
    said += [f"{pair} was not struck" for pair, found in summary["by_pair"].items() if not found["crash_points"]]
    return said
