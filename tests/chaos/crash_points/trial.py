"""Run one trial: a new pipeline runs to its end while faults are injected; then each record's outcome is checked."""

from __future__ import annotations

import json
import random
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, read_contents
from tests.chaos.crash_points.accounting import Balance, Found, balance
from tests.chaos.crash_points.driver_process import Driver, Part
from tests.chaos.crash_points.faults import FaultInjector, Hit, Kind
from tests.chaos.crash_points.pairs import Pair
from tests.chaos.crash_points.records import PER_BATCH, SELECT, WHERE, Record, draw, id_in
from tests.chaos.crash_points.run_spec import RunSpec
from tests.chaos.crash_points.runner import Runner
from tests.chaos.crash_points.servers import Servers
from tests.chaos.crash_points.sinks import SINKS, Sink
from tests.chaos.crash_points.sources import SOURCES, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CADENCE = {"checkpoint_after_ms": 200, "min_checkpoint_count": 1, "max_checkpoint_count": 12}
"""Settled often while a wave runs; and a table sink, which commits once a wave, gets several of them."""

PATIENCE = 180.0
"""Seconds in which a pipeline settles everything once nothing is disturbed any more."""

DEATH = 10.0
"""Seconds in which a process whose Spark was killed ends by itself."""

_LONGEST_GAP = 0.2
_GLANCE = 0.05
_ANYWHERE = 0.3
"""Share of strikes that come soon after the one before, when runs begin anew, fence and reconcile."""

_STUCK = 15.0
"""Seconds without progress after which a strike comes all the same."""

_LATEST_KILL = 3.0


@dataclass(slots=True)
class Report:
    """The findings of one trial."""

    name: str
    pair: str
    copied: bool
    hits: list[Hit] = field(default_factory=list)
    runs: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    balance: Balance = field(default_factory=Balance)
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """Return all faults, in words."""
        return self.balance.faults

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {**asdict(self), "hits": [hit.to_json() for hit in self.hits]}


class Trial:
    """A pipeline from a new source to a new target.

    :param number: with pair and seed it draws everything that is random here
    :param folder: where the evidence of a fault goes
    :param records: how many are put into the source
    """

    def __init__(
        self,
        servers: Servers,
        spark: SparkSession,
        pair: Pair,
        number: int,
        seed: int,
        folder: Path,
        *,
        records: int,
    ) -> None:
        self._servers = servers
        self._spark = spark
        self._pair = pair
        self._rng = random.Random(f"{seed}/{pair}/{number}")
        self._folder = folder
        self._records = records
        self._copied = pair.copies and self._rng.random() < 0.5
        self._report = Report(f"{pair}-{number}", str(pair), self._copied)
        self._began = time.monotonic()
        self._run_spec: RunSpec | None = None

    def play(self, most: int, driver: Driver | None = None) -> Report:
        """Execute the trial to its end.

        :param most: strike no more often than this
        :param driver: begin by killing this one at its work
        """
        self._began = time.monotonic()
        try:
            self._play(most, driver)
        except Exception:  # noqa: BLE001  # a trial that breaks off is a fault, and the campaign goes on
            self._report.faults.append(f"the trial broke off: {traceback.format_exc()}")
            self._keep()
        self._report.seconds = round(time.monotonic() - self._began, 2)
        return self._report

    def _play(self, most: int, driver: Driver | None) -> None:
        name, report = self._report.name, self._report
        source: Source = SOURCES[self._pair.source](self._servers, name, copied=self._copied)
        sink: Sink = SINKS[self._pair.sink](self._servers, name, copied=self._copied)
        records = draw(self._rng, self._records, source.parts, filtered=not self._copied)
        source.fill(records)
        run_spec = RunSpec(self._document(source, sink), self._servers.ledger, self._servers.connections)
        self._run_spec = run_spec
        if driver is not None:
            self._kill(driver, run_spec)
        runner = Runner(run_spec, self._spark, lambda: self._settled(run_spec) >= len(records))
        runner.start()
        try:
            servers = frozenset(server for server in (source.server, sink.server) if server)
            injector = FaultInjector(self._servers, self._spark, servers, self._rng)
            self._strike(runner, sink, injector, most)
        finally:
            done = runner.finish(PATIENCE)
        report.runs, report.errors = runner.runs, dict(runner.errors)
        report.said = [*report.said[-5:], *runner.said[-20:]]
        report.balance = balance(records, self._found(run_spec, sink))
        report.faults.extend(f"no error of the product's own: {text}" for text in runner.strangers)
        if not done:
            report.faults.append(f"not done {PATIENCE:.0f} s after the last strike")
        if report.faults:
            self._keep(records)
        else:
            source.remove()
            sink.remove()

    def _document(self, source: Source, sink: Sink) -> dict[str, Any]:
        parts = source.declare() | sink.declare()
        transform = {} if self._copied else {"where": WHERE, "select": SELECT}
        return {
            "name": self._report.name,
            **parts,
            "transform": parts["transform"] | transform,
            "delivery": "exactly_once",
            "commit_strategy": {"commit_interval": PER_BATCH, **_CADENCE},
            # Whoever is killed by us has done nothing wrong: no batch is to be suspected for good.
            "retry": {"initial_delay_ms": 20, "max_delay_ms": 500, "rounds": 1000},
            "consumer": {"lanes": 2},
            "lease": {"ttl": "20s"},
        }

    def _strike(self, runner: Runner, sink: Sink, injector: FaultInjector, most: int) -> None:
        """Inject faults at moments spread over the run: most after a number of batches, some at random times."""
        for target in sorted(self._rng.uniform(0, self._records / PER_BATCH) for _ in range(most)):
            if self._rng.random() >= _ANYWHERE:
                self._await(runner, sink, target)
            time.sleep(self._rng.uniform(0, _LONGEST_GAP))
            while not runner.done:
                kind, what = injector.strike() if runner.busy else (Kind.RESET, None)
                if what is not None and not runner.done:
                    self._hit(kind, what)
                    break
                time.sleep(_GLANCE)

    def _await(self, runner: Runner, sink: Sink, target: float) -> None:
        deadline = time.monotonic() + _STUCK
        while not runner.done and time.monotonic() < deadline:
            try:
                if sink.progress() >= target:
                    return
            except Exception as error:  # noqa: BLE001  # whatever a driver says of a server that is not there yet
                self._report.said.append(f"no progress to be seen: {error}")
            time.sleep(_GLANCE)

    def _kill(self, driver: Driver, run_spec: RunSpec) -> None:
        """Have a driver begin the run spec, and kill the driver, unless it has finished before."""
        driver.give(run_spec)
        if driver.answer(self._rng.uniform(0.05, _LATEST_KILL)) is not None:
            return
        part = self._rng.choice(list(Part))
        if driver.kill(part):
            self._hit(Kind.DRIVER, part.value)
        if part is Part.JVM:
            driver.answer(DEATH)  # without its Spark the lease holder ends by itself; alive, it would keep its lease

    def _hit(self, kind: Kind, what: str) -> None:
        self._report.hits.append(Hit(kind, what, time.monotonic() - self._began))

    def _settled(self, run_spec: RunSpec) -> int:
        """Return the number of records that the ledger's receipts count."""
        with Ledger.open(run_spec.ledger) as ledger:
            return sum(receipt.counts.read for receipt in ledger.receipts(run_spec.pipeline))

    def _found(self, run_spec: RunSpec, sink: Sink) -> Found:
        with Ledger.open(run_spec.ledger) as ledger:
            setup = run_spec.setup(ledger, "judge")
            with closing(setup.open_sink()) as opened:
                receipts = list(opened.receipts({}))
            dead_letters = sink.dead_letters()
            if dead_letters is None:
                dead_letters = [
                    id_in(kept.dead_letter.value) for _, kept in read_contents(setup, load_index(setup).entries)
                ]
            audit = ledger.audit(run_spec.pipeline)
            partitions = ledger.partitions(run_spec.pipeline).values()
            return Found(
                sink.rows(),
                sink.ordered,
                dead_letters,
                receipts,
                sum(len(record.partition.blocking) for record in partitions),
                [f"audit: {violation}" for violation in audit["violations"]],
            )

    def _keep(self, records: Sequence[Record] = ()) -> None:
        """Write the evidence of a fault to files; topics, tables and files of the trial are not removed."""
        place = self._folder / self._report.name
        place.mkdir(parents=True, exist_ok=True)
        evidence = {
            **self._report.to_json(),
            "document": self._run_spec.document if self._run_spec else None,
            "records": [[record.id, record.part, record.fate.name] for record in records],
            "events": self._events(),
        }
        (place / "evidence.json").write_text(json.dumps(evidence, indent=1, default=str) + "\n")

    def _events(self) -> list[Any]:
        """The ledger's audit log of the pipeline."""
        if self._run_spec is None:
            return []
        try:
            with Ledger.open(self._run_spec.ledger) as ledger:
                return list(ledger.events(self._run_spec.pipeline))
        except CkptError as error:
            return [str(error)]
