"""Run one trial of refreshes: a table is refreshed repeatedly while faults are injected at each step of a refresh.

A reader reads the target all the time; it must see the rows of one version of the source, at least as new as those that
it saw before. When no more faults are injected, the target must become equal to the source, and no staging table may be
left.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial
from typing import Any

from tests.chaos.crash_points.accounting import Balance
from tests.chaos.crash_points.driver_process import Driver, Part
from tests.chaos.crash_points.faults import FaultInjector, Kind
from tests.chaos.crash_points.generations import Oracle, change_source, create_source
from tests.chaos.crash_points.refreshed_targets import REFRESHED, Moment, RefreshedTarget
from tests.chaos.crash_points.run_spec import RunSpec
from tests.chaos.crash_points.runner import Runner
from tests.chaos.crash_points.servers import DATABASE, Server
from tests.chaos.crash_points.trial import DEATH, PATIENCE, Trial
from tests.services.proxy import Break
from tests.services.tables import execute

MOMENTS = (Moment.STAGING, Moment.PUBLISHING, Moment.COMMITTED, Moment.CLEANUP)
"""The moments at which a trial strikes, each in its turn; the last one needs a refresh that failed before."""

_PER_BATCH = 60
_REACHED = 20.0
"""Seconds in which a refresh reaches each of its moments, unless it fails before."""

_TRIES = 4
_OUTAGE = 0.5
_HELD = (Kind.RESET, Kind.SESSION, Kind.SERVER, Kind.DAEMON, Kind.WORKER)
"""The kinds of faults that come while a run waits for an answer."""


class RefreshTrial(Trial):
    """A pipeline with ``mode: replace``, from a source that changes all the time; see :class:`.Trial`."""

    def _play(self, most: int, driver: Driver | None) -> None:
        name, report, dsn = self._report.name, self._report, self._servers.dsn
        table = f'"{name}-in"'
        create_source(dsn, table)
        target: RefreshedTarget = REFRESHED[self._pair.sink](self._servers, name)
        oracle = Oracle(target.seen, partial(change_source, dsn, table), outages=True)
        run_spec = RunSpec(self._declare(table, target), self._servers.ledger, self._servers.connections)
        self._run_spec = run_spec
        moments = list(MOMENTS)
        self._rng.shuffle(moments)
        calm = _CalmRuns()
        with oracle.watching():
            if driver is not None:
                self._kill_at(self._rng.choice(MOMENTS[:-1]), driver, run_spec, target)
            runner = Runner(run_spec, self._spark, calm.is_over)
            runner.start()
            try:
                servers = frozenset({Server.POSTGRES, target.server})
                injector = FaultInjector(self._servers, self._spark, servers, self._rng)
                for number in range(most):
                    self._strike_at(moments[number % len(moments)], injector, target)
            finally:
                self._servers.calm()
                oracle.stop_changes()
                calm.begin()
                done = runner.finish(PATIENCE)
        report.runs, report.errors = runner.runs, dict(runner.errors)
        report.said = [*report.said[-5:], *runner.said[-20:]]
        wanted = Counter((row[0], row[1]) for row in execute(dsn, f"SELECT id, version FROM {table}"))
        found = Counter(target.rows())
        faults = [f"{invariant}: a reader saw {seen}" for invariant, seen in oracle.broken()]
        faults += [] if oracle.reads else ["nobody read the target"]
        faults += [f"{target.leftovers()} staging tables are left"] if target.leftovers() else []
        lost, doubled = (wanted - found).total(), (found - wanted).total()
        if lost or doubled:
            faults.append(f"the target lacks {lost} rows of the source, and has {doubled} too many")
        faults += [f"no error of the product's own: {text}" for text in runner.strangers]
        faults += [] if done else [f"not done {PATIENCE:.0f} s after the last strike"]
        report.balance = Balance(lost, doubled, [*report.faults, *faults])
        if report.faults:
            self._keep()
        else:
            target.remove()
            execute(dsn, f"DROP TABLE {table}")

    def _declare(self, table: str, target: RefreshedTarget) -> dict[str, Any]:
        return {
            "name": self._report.name,
            "source": {"type": "postgres", "connection": DATABASE, "table": table, "mode": "full"},
            "sink": target.declare(),
            "transform": {} if self._copied else {"where": "version >= 0"},
            "commit_strategy": {"commit_interval": _PER_BATCH, "checkpoint_after_ms": 200, "min_checkpoint_count": 1},
            "retry": {"initial_delay_ms": 20, "max_delay_ms": 500, "rounds": 1000},
            "consumer": {"lanes": 2},
            "lease": {"ttl": "20s", "wait": "30s"},
        }

    def _strike_at(self, moment: Moment, injector: FaultInjector, target: RefreshedTarget) -> None:
        """Strike once at a moment of the refreshes that are running; a moment that none reaches is a fault."""
        how = Break.AFTER if moment is Moment.COMMITTED else self._rng.choice((Break.BEFORE, Break.HOLD))
        for _ in range(_TRIES):
            if moment is Moment.CLEANUP:
                self._abandon(target)
            if target.catch(moment, how).wait(_REACHED):
                break
            self._servers.calm()
        else:
            self._report.faults.append(f"no refresh was caught {moment}")
            return
        if how is Break.HOLD:
            kind, what = injector.strike(_HELD)
            if what is None:
                kind, what = injector.strike([Kind.RESET])
            self._hit(kind, f"{what or 'the connection'}, {moment}")
            self._servers.rows.reset()
            self._servers.sales.reset()
        else:
            kind = Kind.REQUEST if target.server is Server.STORE else Kind.ANSWER if how is Break.AFTER else Kind.RESET
            self._hit(kind, moment)

    def _abandon(self, target: RefreshedTarget) -> None:
        """Make a refresh fail that has staged rows: its snapshot ends, and the ledger is not there for a moment."""
        if target.catch(Moment.STAGED, Break.AFTER).wait(_REACHED):
            self._servers.books.refuse()
            self._servers.rows.reset()
            time.sleep(_OUTAGE)
            self._servers.books.accept()

    def _kill_at(self, moment: Moment, driver: Driver, run_spec: RunSpec, target: RefreshedTarget) -> None:
        """Have a driver begin a refresh, and kill the driver at a moment, unless it has failed before."""
        reached = target.catch(moment, Break.AFTER if moment is Moment.COMMITTED else Break.HOLD)
        driver.give(run_spec)
        if reached.wait(_REACHED):
            part = self._rng.choice(list(Part))
            if driver.kill(part):
                self._hit(Kind.DRIVER, f"{part.value}, {moment}")
            if part is Part.JVM:
                driver.answer(DEATH)  # without its Spark the lease holder ends by itself, and gives back its lease
        self._servers.calm()
        self._servers.rows.reset()
        self._servers.sales.reset()


class _CalmRuns:
    """Counts the runs that do not fail after the last disturbance; the second of them has begun after it, too."""

    def __init__(self) -> None:
        self._begun = threading.Event()
        self._runs = 0

    def begin(self) -> None:
        """Note that nothing is disturbed any more."""
        self._begun.set()

    def is_over(self) -> bool:
        """Count a run that has not failed, and return whether it is the second one since :meth:`begin`."""
        self._runs += self._begun.is_set()
        return self._runs >= 2
