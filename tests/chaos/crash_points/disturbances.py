"""Change source, sink or ledger between two runs, and check that the next run reports the change or repairs it.

Between two runs of a pipeline, its sink or ledger is restored from an older copy, its target is emptied or created
again, the source begins to count from 1 again, or a trigger discards rows. The next run must then either fail with an
error of this package that names the pipeline and says what to do, or leave the target with all expected rows. If the
sink has lost rows, the test follows the error's hint; afterwards the target must contain each row once.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.actions import accept_sink
from tests.chaos.crash_points import backups, sinks
from tests.chaos.crash_points.pairs import Pair
from tests.chaos.crash_points.records import Fate, Record, draw, of_fate, places
from tests.chaos.crash_points.run_spec import RunSpec
from tests.chaos.crash_points.servers import Servers
from tests.chaos.crash_points.sinks import SINKS, Sink
from tests.chaos.crash_points.sources import SOURCES, Source, SqliteTable, Table
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_OWNER = "dag:chaos/disturbance"
_RECORDS = 60
"""Number of records put into the source at each of three times."""
_RETRIES = 5
_PAUSE = 1.0
"""Seconds before a run that an outage ended is started again."""


class Disturbance(StrEnum):
    """An event between two runs that the pipeline is not notified of."""

    SINK_SET_BACK = "sink set back to an older copy"
    LEDGER_SET_BACK = "ledger set back to an older copy"
    TARGET_EMPTIED = "target truncated"
    TARGET_REPLACED = "target dropped and made anew"
    POSITIONS_REUSED = "source counts from 1 again"
    ROWS_SWALLOWED = "a trigger swallows rows"


RESENT = frozenset({Disturbance.SINK_SET_BACK, Disturbance.TARGET_EMPTIED, Disturbance.TARGET_REPLACED})
"""Those after which the sink gets again what it has lost, so that told is not the end of it."""

_ALL_SINKS = frozenset({Disturbance.LEDGER_SET_BACK, Disturbance.TARGET_REPLACED})
_OF_SINK: Mapping[str, frozenset[Disturbance]] = {
    "postgres": frozenset({Disturbance.SINK_SET_BACK, Disturbance.TARGET_EMPTIED, Disturbance.ROWS_SWALLOWED}),
    "delta": frozenset({Disturbance.SINK_SET_BACK}),
    "iceberg": frozenset({Disturbance.SINK_SET_BACK}),
    "kafka": frozenset(),
    "mariadb": frozenset({Disturbance.TARGET_EMPTIED}),
    "delta_in_s3": frozenset(),
    "files_in_s3": frozenset(),
    "iceberg_in_s3": frozenset(),
}
_OF_SOURCE: Mapping[str, frozenset[Disturbance]] = dict.fromkeys(
    ("postgres", "sqlite"), frozenset({Disturbance.POSITIONS_REUSED})
)
_SINK_ARCHIVES: Mapping[str, Callable[[Servers, str], backups.Archive]] = {
    "postgres": backups.of_table,
    "delta": backups.of_delta,
    "iceberg": backups.IcebergPointer,
}


def disturbances(pair: Pair) -> list[Disturbance]:
    """Return the disturbances that are possible between a source and a sink; none if runs replace all rows."""
    if pair.refreshes:
        return []
    possible = _ALL_SINKS | _OF_SINK[pair.sink] | _OF_SOURCE.get(pair.source, frozenset())
    return [disturbance for disturbance in Disturbance if disturbance in possible]


@dataclass(slots=True)
class Outcome:
    """Result of one disturbance.

    :param told: the error that the run ended with, empty if it ended without one
    :param faults: the faults if the run neither reported the change nor repaired it; else empty
    """

    name: str
    pair: str
    disturbance: Disturbance
    told: str = ""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name}: {'; '.join(self.faults) or ('told' if self.told else 'equal')}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {
            "name": self.name,
            "pair": self.pair,
            "disturbance": self.disturbance.value,
            "told": self.told,
            "faults": self.faults,
        }


class DisturbedRun:
    """One pipeline, with one disturbance between two of its runs.

    :param number: with pair, disturbance and seed it draws everything that is random here
    """

    def __init__(self, servers: Servers, spark: SparkSession, pair: Pair, disturbance: Disturbance, seed: int) -> None:
        name = f"{pair}-{disturbance.name.lower().replace('_', '-')}-{seed}"
        self._servers = servers
        self._spark = spark
        self._disturbance = disturbance
        self._rng = random.Random(name)
        self._name = name
        self._source: Source = SOURCES[pair.source](servers, name, copied=False)
        self._sink: Sink = SINKS[pair.sink](servers, name, copied=False)
        self._sink_archive = _SINK_ARCHIVES.get(pair.sink)
        self._records: list[Record] = []
        self._outcome = Outcome(name, str(pair), disturbance)
        parts = self._source.declare() | self._sink.declare()
        document = {"name": name, **parts, "delivery": "exactly_once", "commit_strategy": {"commit_interval": 10}}
        self._run_spec = RunSpec(document, servers.ledger, servers.connections)

    def play(self) -> Outcome:
        """Run the pipeline, apply the disturbance, run again, and check the result."""
        outcome = self._outcome
        self._fill()
        self._run()
        put_back = self._saved()
        self._fill()
        self._run()
        if self._missing():
            outcome.faults.append(f"not equal before anything was done: {self._missing()}")
            return outcome
        put_back()
        if self._disturbance is not Disturbance.POSITIONS_REUSED:
            self._fill()
        try:
            self._run()
        except CkptError as error:
            outcome.told = str(error)
            if error.pipeline != self._name:
                outcome.faults.append(f"the error does not name the pipeline: {error}")
            if not error.hint:
                outcome.faults.append(f"the error does not say what to do: {error}")
            if self._disturbance in RESENT:
                self._resend()
        else:
            missing = self._missing()
            if missing:
                outcome.faults.append(f"neither told nor equal: {missing}")
        return outcome

    def _resend(self) -> None:
        """Follow the hint of the error, and compare the target with the source."""
        with Ledger.open(self._run_spec.ledger) as ledger:
            setup = self._run_spec.setup(ledger, _OWNER)
            resending = accept_sink.make_acceptance(setup, resend=True)
            _retry_outages(
                lambda: accept_sink.apply_sink_change(
                    setup, resending, actor="os:chaos", reason="the sink was set back"
                )
            )
        self._run()
        if self._missing():
            self._outcome.faults.append(f"told, but not made good by what the error says: {self._missing()}")

    def _fill(self) -> None:
        first = len(self._records)
        drawn = draw(self._rng, _RECORDS, self._source.parts, filtered=False)
        fresh = [Record(record.id + first, record.part, Fate.DELIVERED) for record in drawn]
        self._source.fill(fresh)
        self._records += fresh

    def _run(self) -> None:
        summary = _retry_outages(lambda: self._run_spec.run(self._spark, _OWNER))
        if summary.route != ["done"]:
            raise CkptError(f"the run ended with {summary.route}", pipeline=self._name, hint="see its summary")

    def _missing(self) -> str:
        """Return the difference between target and source as text; empty if there is none."""
        wanted = Counter(number for _, number in places(of_fate(self._records, Fate.DELIVERED)))
        found = Counter(number for _, number in self._sink.rows())
        lost, doubled = sum((wanted - found).values()), sum((found - wanted).values())
        return f"{lost} rows lost, {doubled} too many" if lost or doubled else ""

    def _saved(self) -> Callable[[], None]:
        """Take the copies that the disturbance needs, and return a function that applies the disturbance."""
        if self._disturbance in (Disturbance.SINK_SET_BACK, Disturbance.LEDGER_SET_BACK):
            make = self._sink_archive if self._disturbance is Disturbance.SINK_SET_BACK else backups.of_ledger
            assert make is not None
            copy = make(self._servers, self._name)
            copy.save()
            return copy.put_back
        return {
            Disturbance.TARGET_EMPTIED: self._empty,
            Disturbance.TARGET_REPLACED: self._replace,
            Disturbance.POSITIONS_REUSED: self._reuse,
            Disturbance.ROWS_SWALLOWED: self._swallow,
        }[self._disturbance]

    def _empty(self) -> None:
        assert isinstance(self._sink, sinks.Table | sinks.MariaDbTable)
        self._sink.empty()

    def _replace(self) -> None:
        self._sink.remove()
        self._sink = type(self._sink)(self._servers, self._name, copied=False)

    def _reuse(self) -> None:
        assert isinstance(self._source, Table | SqliteTable)
        self._records += self._source.begin_again(self._rng.randint(1, _RECORDS))

    def _swallow(self) -> None:
        execute(
            self._servers.dsn,
            "CREATE OR REPLACE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.id % 7 = 0 THEN RETURN NULL; END IF; RETURN NEW; END $$",
            f'CREATE TRIGGER swallow BEFORE INSERT ON "{self._name}-out" FOR EACH ROW EXECUTE FUNCTION swallow()',
        )


def _retry_outages(operation: Callable[[], T]) -> T:
    """Run an operation until no outage ends it, as Airflow's retries do: a busy broker may not answer in time.

    :raises CkptError: if the operation ends otherwise, or each of several attempts meets an outage
    """
    for _ in range(_RETRIES):
        try:
            return operation()
        except CkptError as error:
            if not error.recoverable:
                raise
            time.sleep(_PAUSE)
    return operation()


def play_all(
    servers: Servers, spark: SparkSession, pairs: Sequence[Pair], seed: int, tell: Callable[[Outcome], None]
) -> list[Outcome]:
    """Play every disturbance that is possible on each pair, once.

    :param seed: draws the records
    :param tell: told of each when it is over
    """
    outcomes = []
    for pair in pairs:
        for disturbance in disturbances(pair):
            outcomes.append(DisturbedRun(servers, spark, pair, disturbance, seed).play())
            tell(outcomes[-1])
    return outcomes
