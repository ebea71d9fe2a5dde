"""Inject a fault into a run of the soak test: cancel it, or kill its process, a lane, or the driver."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.services.processes import Role, below
from tests.services.warm_spark import session_of

LATEST = 0.9
"""Seconds after the beginning of a run at which a strike comes at the latest, where a run goes on for longer."""


class Strike(StrEnum):
    """A strike at a run, or at what it needs."""

    CANCEL = "cancelled"
    RUN = "killed_runs"
    LANE = "killed_lanes"
    DAEMON = "killed_daemons"
    DRIVER = "killed_drivers"


_RUNS_FOR_ONE: Mapping[Strike, int] = {
    Strike.CANCEL: 25,
    Strike.RUN: 20,
    Strike.LANE: 20,
    Strike.DAEMON: 200,
    Strike.DRIVER: 250,
}
"""Number of runs of which one is struck so."""

_SETTLED_SECONDS = 1.0
"""Seconds for which a driver has accepted runs before it counts.

The run that starts a driver takes one that dies sooner for one that cannot start, and no driver with the same
properties is started for five minutes.
"""

_UNDISTURBED = (0.4, 0.85)
"""Part of the runs during which no driver is killed, so that one lives long enough to show whether it grows."""


@dataclass(frozen=True)
class Plan:
    """The strikes.

    :param runs: number of runs
    :param strikes: by number of the run during which it comes, from 0
    """

    runs: int
    strikes: Mapping[int, Strike]

    @classmethod
    def draw(cls, runs: int, seed: int) -> Plan:
        """Draw the runs that are struck, with at least one strike of each kind; a run is struck once at most."""
        chance = random.Random(seed)
        numbers = list(range(runs))
        chance.shuffle(numbers)
        first, last = (round(runs * share) for share in _UNDISTURBED)
        disturbed = [number for number in numbers if not first <= number < last]
        drawn = dict.fromkeys(disturbed[: max(1, runs // _RUNS_FOR_ONE[Strike.DRIVER])], Strike.DRIVER)
        others = iter([number for number in numbers if number not in drawn])
        for strike, share in _RUNS_FOR_ONE.items():
            if strike is not Strike.DRIVER:
                drawn |= {next(others): strike for _ in range(max(1, runs // share))}
        return cls(runs, drawn)

    def planned(self, strike: Strike) -> int:
        """Return the number of strikes of a kind."""
        return sum(found is strike for found in self.strikes.values())


def drivers(runtime: Path) -> list[int]:
    """Return the pids of the Java processes of the standing drivers that have accepted runs for a second or more.

    :param runtime: the runtime directory
    """
    found = []
    for owner in runtime.glob("*/owner"):
        with suppress(OSError, ValueError):
            pid = int(owner.read_text().split(":")[2])
            accepts_since = (owner.parent / "socket").stat().st_mtime
            if time.time() - accepts_since >= _SETTLED_SECONDS and Path(f"/proc/{pid}").exists():
                found.append(pid)
    return found


def strike_lane(runtime: Path, chance: random.Random) -> bool:
    """Kill one of the Python workers of a driver; return whether there was one."""
    return _kill([pid for java in drivers(runtime) for pid in _workers(java)], chance)


def strike_daemon(runtime: Path, chance: random.Random) -> bool:
    """Kill the daemon that forks the Python workers of a driver; return whether there was one."""
    found = [process.pid for java in drivers(runtime) for process in below(java) if process.role is Role.DAEMON]
    return _kill(found, chance)


def strike_driver(runtime: Path, chance: random.Random) -> bool:
    """Kill a driver: all its processes, its Java, or its Python; return whether there was one."""
    living = drivers(runtime)
    if not living:
        return False
    java = chance.choice(living)
    python = [process.pid for process in below(java) if process.role is Role.OTHER]
    whole = session_of(java)
    for pid in chance.choice([whole, [java], python or [java]]):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


def _workers(java: int) -> list[int]:
    """Return the Python workers of a driver; a worker whose daemon was killed goes on without a parent."""
    with suppress(ProcessLookupError):
        others = {process.pid for process in below(java) if process.role in (Role.OTHER, Role.DAEMON)}
        return [pid for pid in session_of(java) if pid != java and pid not in others]
    return []


def _kill(pids: Sequence[int], chance: random.Random) -> bool:
    if not pids:
        return False
    with suppress(ProcessLookupError):
        os.kill(chance.choice(pids), signal.SIGKILL)
        return True
    return False
