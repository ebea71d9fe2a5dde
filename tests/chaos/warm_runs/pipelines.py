"""The ten pipelines of the soak test: sources that grow before each run, and targets of all kinds.

Each record is created with the outcome that it must have (``crash_points/records.py``); the final check compares them.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, read_contents
from tests.chaos.crash_points.accounting import Balance, Found, balance
from tests.chaos.crash_points.records import PER_BATCH, SELECT, WHERE, Fate, Record, draw, id_in
from tests.chaos.crash_points.run_spec import RunSpec
from tests.chaos.crash_points.servers import DATABASE, Server, Servers
from tests.chaos.crash_points.sinks import Delta, Place, Sink, Table
from tests.chaos.crash_points.sources import Files as FilesSource
from tests.chaos.crash_points.sources import Source
from tests.chaos.crash_points.sources import Table as TableSource
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.replication import connection_to
from tests.services.tables import execute

ROWS = 2 * PER_BATCH
"""New records before a run."""

FUNCTIONS = "soak_functions"
"""Name of the module with the function of a transform; it has to be on the path of Python modules."""

_FUNCTION = "def unchanged(rows):\n    return rows\n"
_TEXT = "id bigint, part int, kind int"


class DatabaseServer(Servers):
    """A PostgreSQL server alone, which runs reach without a proxy; there is no Kafka broker."""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{FUNCTIONS}.py").write_text(_FUNCTION)
        with self._open as stack:
            self.postgres = stack.enter_context(PostgresServer())
            self.dsn = self.postgres.new_database()
            self.ledger = sqlalchemy_url(self.postgres.new_database())
            migrate.upgrade(self.ledger)
            self._open = stack.pop_all()
        return self

    @property
    def connections(self) -> dict[str, Any]:
        """Return the connections in the form that runs get them."""
        return {DATABASE: connection_to(self.dsn, DATABASE)}


class Lines(FilesSource):
    """JSON lines, in one more file each time."""

    def fill(self, records: Sequence[Record]) -> None:
        (self._place / f"{self._files}.jsonl").write_bytes(b"".join(record.text() + b"\n" for record in records))
        self._files += 1


class KeyedTable(Table):
    """A table whose rows are replaced by key, to which at-least-once delivery may send a row again."""

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        super().__init__(servers, name, copied=copied)
        execute(servers.dsn, f"ALTER TABLE {self._table} ADD PRIMARY KEY (id)")

    def declare(self) -> dict[str, Any]:
        sink = super().declare()["sink"]
        return {"sink": {**sink, "mode": "upsert", "key": ["id"]}, "delivery": "at_least_once"}


class Files:
    """JSON lines, a file for each batch. Its dead letters are files beside it."""

    ordered = False
    server: Server | None = None

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._place: Path = servers.folder / f"{name}-out"

    def declare(self) -> dict[str, Any]:
        return {"sink": {"type": "files", "format": "jsonl", "path": str(self._place)}}

    def progress(self) -> int:
        return sum(1 for _ in self._place.glob("*.jsonl"))

    def rows(self) -> list[Place]:
        lines = [line for path in self._place.glob("*.jsonl") for line in path.read_text().splitlines()]
        return [tuple(int(re.search(rf'"{key}": ?(\d+)', line)[1]) for key in ("part", "id")) for line in lines]  # type: ignore[index,misc]

    def dead_letters(self) -> None:
        return None

    def remove(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Kind:
    """The source, sink and transform of a pipeline.

    :param source: where its records come from
    :param sink: where they go
    :param copied: whether they go on unchanged, so that only the sink can reject one
    :param good: whether each of them is delivered
    :param transform: further keys of its transform
    """

    source: Callable[..., Source]
    sink: Callable[..., Sink]
    copied: bool = False
    good: bool = False
    transform: Mapping[str, Any] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "copied": Kind(TableSource, Table, copied=True, good=True),
    "copied-some-bad": Kind(TableSource, Table, copied=True),
    "copied-by-key": Kind(TableSource, KeyedTable, copied=True, good=True),
    "selected": Kind(TableSource, Table),
    "by-function": Kind(TableSource, Table, transform={"python": f"{FUNCTIONS}:unchanged", "returns": _TEXT}),
    "table-to-delta": Kind(TableSource, Delta),
    "table-to-files": Kind(TableSource, Files),
    "lines-to-table": Kind(Lines, Table),
    "lines-to-delta": Kind(Lines, Delta),
    "lines-to-files": Kind(Lines, Files),
}
"""By name of the pipeline."""


class GrowingPipeline:
    """One of the pipelines, from a new source to a new target.

    :param servers: the database server, and a folder for files
    :param name: one of :data:`KINDS`
    :param rng: draws its records
    :ivar records: all records that its source holds
    """

    def __init__(self, servers: Servers, name: str, rng: random.Random) -> None:
        self.name = name
        self._rng = rng
        self._kind = KINDS[name]
        self._source = self._kind.source(servers, name, copied=self._kind.copied)
        self._sink = self._kind.sink(servers, name, copied=self._kind.copied)
        self.records: list[Record] = []
        self.run_spec = RunSpec(self._document(), servers.ledger, servers.connections)

    def grow(self) -> None:
        """Put new records into the source."""
        drawn = draw(self._rng, ROWS, self._source.parts, filtered=not self._kind.copied)
        new = [replace(record, id=record.id + len(self.records)) for record in drawn]
        if self._kind.good:
            new = [replace(record, fate=Fate.DELIVERED) for record in new]
        self._source.fill(new)
        self.records += new

    def balance(self) -> Balance:
        """Account for every record and every receipt."""
        with Ledger.open(self.run_spec.ledger) as ledger:
            setup = self.run_spec.setup(ledger, "judge")
            with closing(setup.open_sink()) as opened:
                receipts = list(opened.receipts({}))
            dead_letters = self._sink.dead_letters()
            if dead_letters is None:
                found = read_contents(setup, load_index(setup).entries)
                dead_letters = [id_in(kept.dead_letter.value) for _, kept in found]
            return balance(
                self.records,
                Found(
                    self._sink.rows(),
                    self._sink.ordered,
                    dead_letters,
                    receipts,
                    sum(len(found.partition.blocking) for found in ledger.partitions(self.name).values()),
                    [f"audit: {violation}" for violation in ledger.audit(self.name)["violations"]],
                ),
            )

    def _document(self) -> dict[str, Any]:
        parts = self._source.declare() | self._sink.declare()
        transform = {} if self._kind.copied else {"where": WHERE, "select": SELECT, **self._kind.transform}
        return {
            "name": self.name,
            "delivery": "exactly_once",
            **parts,
            "transform": parts["transform"] | transform,
            "commit_strategy": {"commit_interval": PER_BATCH},
            # Whoever is killed by us has done nothing wrong: no batch is to be suspected for good.
            "retry": {"initial_delay_ms": 20, "max_delay_ms": 500, "rounds": 1000},
            "consumer": {"lanes": 2},
            "run": {"engine": "warm"},
        }
