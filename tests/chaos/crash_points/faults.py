"""Inject faults into a run in progress: kill processes, reset connections, pause and kill servers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tests.chaos.crash_points.servers import Server, Servers
from tests.services.http_proxy import Fault, Rule
from tests.services.processes import Role, below, kill
from tests.services.proxy import Break, Proxy
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALL = 0.6
"""Share of worker kills that hit all of them."""

_LONGEST_PAUSE = 1.2

_END_ONE = """
    SELECT application_name, pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name LIKE 'ckpt%' ORDER BY random() LIMIT 1
"""

_MARIADB_SESSIONS = """
    SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()
"""


class Kind(StrEnum):
    """The kind of a crash point."""

    DRIVER = "driver killed"
    WORKER = "worker killed"
    DAEMON = "worker daemon killed"
    RESET = "connections reset"
    SESSION = "session ended by the server"
    ANSWER = "answer of a commit lost"
    PAUSE = "server paused"
    SERVER = "server killed"
    REQUEST = "request to the store failed"


_SHARES = {
    Kind.WORKER: 18,
    Kind.DAEMON: 3,
    Kind.RESET: 38,
    Kind.SESSION: 14,
    Kind.ANSWER: 7,
    Kind.PAUSE: 16,
    Kind.SERVER: 4,
    Kind.REQUEST: 60,
}
"""Weight with which each is drawn in a warm session; drivers are killed by plan, requests fail if a store is used."""

_FAULTS = (Fault.ERROR, Fault.SLOW_DOWN, Fault.CUT, Fault.LOST, Fault.LOST, Fault.LOST_ERROR, Fault.SLOW)

_IDLE = 2.0
"""Seconds that Spark is waited for to be at work, since its processes are to be killed at it."""

_JOB = 0.2
"""Seconds into a job at which its processes are killed, at most."""

_GLANCE = 0.005
_COMMIT = 1.0
"""Seconds that a commit is waited for, to lose its answer."""

_OTHERS = 0.5
"""Share of strikes at a server that hit MariaDB, where a trial uses it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One crash point that hit something.

    :param at: seconds since the trial began
    """

    kind: Kind
    what: str
    at: float

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {"kind": self.kind.value, "what": self.what, "at": round(self.at, 3)}


class FaultInjector:
    """Injects faults into the processes, connections and servers that one trial uses.

    :param spark: of the runs
    :param servers: all servers of the tests
    :param used: servers that records come from or go to; the ledger's server is used by every trial
    :param rng: draws all that is random, so that a seed tells what was struck
    """

    def __init__(self, servers: Servers, spark: SparkSession, used: frozenset[Server], rng: random.Random) -> None:
        self._servers = servers
        self._tracker = spark.sparkContext.statusTracker()
        gateway: Any = spark.sparkContext._gateway
        self._jvm: int = gateway.proc.pid
        self._rng = rng
        self._used = used
        self._steps: dict[Kind, Callable[[], str | None]] = {
            Kind.WORKER: lambda: self._kill([Role.WORKER]),
            Kind.DAEMON: lambda: self._kill([Role.DAEMON, Role.WORKER]),
            Kind.RESET: self._reset,
            Kind.SESSION: self._end_session,
            Kind.ANSWER: self._lose_answer,
            Kind.PAUSE: self._pause,
            Kind.SERVER: self._crash,
            Kind.REQUEST: self._fail_request,
        }
        if Server.STORE not in used:
            del self._steps[Kind.REQUEST]

    def strike(self, kinds: Collection[Kind] = tuple(Kind)) -> tuple[Kind, str | None]:
        """Inject one fault and return it; None if there was nothing to hit.

        :param kinds: the kinds to draw from
        """
        possible = [kind for kind in self._steps if kind in kinds]
        kind = self._rng.choices(possible, [_SHARES[kind] for kind in possible])[0]
        return kind, self._steps[kind]()

    def _kill(self, roles: Sequence[Role]) -> str | None:
        """Send SIGKILL to some Python workers, or to the daemon and all its workers.

        It comes some moment into a job.
        """
        deadline = time.monotonic() + _IDLE
        while not self._at_work and time.monotonic() < deadline:
            time.sleep(_GLANCE)
        time.sleep(self._rng.uniform(0, _JOB))
        if not self._at_work:
            return None
        family = below(self._jvm)
        found = [process for role in roles for process in family if process.role is role]
        wanted = found if Role.DAEMON in roles or self._rng.random() < _ALL else found[:1]  # some only wait for work
        reached = kill(wanted)
        return f"{len(reached)} of {len(found)}" if reached else None

    @property
    def _at_work(self) -> bool:
        return bool(self._tracker.getActiveJobsIds())

    def _reset(self) -> str | None:
        name, proxy = self._rng.choice(self._proxies())
        number = proxy.reset()
        return f"{number} to the {name}" if number else None

    def _lose_answer(self) -> str | None:
        """Reset the next connection that commits, once the server has committed, so that its client does not know."""
        found = [(name, proxy) for name, proxy in self._proxies() if proxy is not self._servers.stream]
        name, proxy = self._rng.choice(found)
        sprung = proxy.trap(b"COMMIT", how=Break.AFTER).wait(_COMMIT)
        proxy.calm()
        return name if sprung else None

    def _end_session(self) -> str | None:
        if Server.MARIADB in self._used and self._rng.random() < _OTHERS:
            return self._end_mariadb_session()
        found = execute(self._servers.postgres.dsn, _END_ONE)
        return str(found[0][0]) if found else None

    def _end_mariadb_session(self) -> str | None:
        server, shop = self._servers.mariadb, self._servers.shop
        found = [row[0] for row in server.execute(shop, _MARIADB_SESSIONS, parameters=[shop])]
        if not found:
            return None
        with suppress(Exception):  # it may have ended meanwhile
            server.execute(shop, f"KILL {self._rng.choice(found)}")
        return "MariaDB"

    def _pause(self) -> str | None:
        seconds = self._rng.uniform(0.05, _LONGEST_PAUSE)
        if Server.STORE in self._used and self._rng.random() < 0.5:
            self._servers.store.pause()
            time.sleep(seconds)
            self._servers.store.resume()
            return f"store, {seconds:.2f} s"
        name, proxy = self._rng.choice(self._proxies())
        if proxy is self._servers.stream:
            self._servers.kafka.pause()
            time.sleep(seconds)
            self._servers.kafka.resume()
            return f"broker, {seconds:.2f} s"
        number = proxy.pause()
        time.sleep(seconds)
        proxy.resume()
        return f"{name}, {seconds:.2f} s" if number else None

    def _crash(self) -> str:
        if Server.MARIADB in self._used and self._rng.random() < _OTHERS:
            self._servers.crash_mariadb()
            return "MariaDB"
        if Server.KAFKA in self._used and self._rng.random() < 0.5:
            self._servers.crash_kafka()
            return "broker"
        if Server.STORE in self._used and self._rng.random() < 0.5:
            self._servers.crash_store()
            return "store"
        self._servers.crash_postgres()
        return "PostgreSQL"

    def _fail_request(self) -> str | None:
        """Let the next requests of a kind fail: refused, unanswered or answered late; the store may have done them."""
        fault, method = self._rng.choice(_FAULTS), self._rng.choice(("PUT", "PUT", "GET", ".*"))
        rule = Rule(fault, method=method, times=self._rng.randint(1, 3), seconds=self._rng.uniform(0.1, _LONGEST_PAUSE))
        self._servers.requests.fail(rule)
        return f"{fault} of {method}" if rule.sprung.wait(_IDLE) else None

    def _proxies(self) -> Sequence[tuple[str, Proxy]]:
        servers = self._servers
        wanted = {
            "ledger": True,
            "database": Server.POSTGRES in self._used,
            "broker": Server.KAFKA in self._used,
            "MariaDB": Server.MARIADB in self._used,
        }
        proxies = {
            "ledger": servers.books,
            "database": servers.rows,
            "broker": servers.stream,
            "MariaDB": servers.sales,
        }
        return [(name, proxies[name]) for name, used in wanted.items() if used]
