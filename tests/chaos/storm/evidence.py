"""Collect the evidence for the judge: journals, rows of the ledger's tables, the sink's receipts, and audits.

The tables are read with SQL, not through the code that the storm tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.store import database as engines
from airflow_provider_ckpt.ledger.store import tables
from tests.chaos.storm import journal
from tests.chaos.storm.journal import Entry
from tests.chaos.storm.sink import AbstractSink

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """An error of the ledger that the judge has found.

    :param kind: one of ``lost``, ``stale_accepted``, ``violation``
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


LOST = "lost"
"""An acknowledged command, or a part of one, that the ledger no longer knows."""

STALE_ACCEPTED = "stale_accepted"
"""A command of an older epoch, or of nobody, that was carried out."""

VIOLATION = "violation"
"""Anything else that must not be: an invariant, a sum, an answer that nothing explains."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one storm.

    :param entries: every command of every process, in the order in which they were tried
    :param events: as the subscriptions told them while the storm went on
    :param kept: those that are left in the table
    :param intents: every stored action that was ever read
    :param sink: every receipt, by pipeline
    :param collected: whether old rows were deleted
    """

    entries: Sequence[Entry]
    events: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    kept: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    partitions: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    generations: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    batches: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    attempts: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    receipts: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    intents: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    sink: Mapping[str, Sequence[Receipt]] = field(default_factory=dict)
    collected: bool = False

    @property
    def pipelines(self) -> list[str]:
        """Names of all pipelines that any command concerned."""
        return sorted({entry.pipeline for entry in self.entries})

    def of(self, pipeline: str, *does: str) -> list[Entry]:
        """The commands on one pipeline, all or those of some kinds."""
        return [entry for entry in self.entries if entry.pipeline == pipeline and (not does or entry.do in does)]


class Read(Protocol):
    """Rows that were read while the storm was running, and may have been garbage-collected since."""

    @property
    def events(self) -> Mapping[str, Sequence[Row]]:
        """The audit logs."""

    @property
    def intents(self) -> Mapping[str, Sequence[Row]]:
        """Return the stored actions that were read."""

    @property
    def collected(self) -> int:
        """Return the number of rows that were deleted."""


def gather(ledger: str, sink: str, folder: Path, read: Read) -> Evidence:
    """Read everything; nothing may run any more.

    :param folder: where the journals are
    """
    engine = engines.create_engine(engines.parse_url(ledger))
    try:
        with engine.begin() as connection:
            kept = _by_pipeline(connection, tables.event, tables.event.c.id)
            partitions = _by_pipeline(connection, tables.partition)
            generations = _by_pipeline(connection, tables.generation)
            batches = _by_pipeline(connection, tables.batch)
            attempts = _by_pipeline(connection, tables.attempt)
            receipts = _by_pipeline(connection, tables.receipt, tables.receipt.c.range_start)
    finally:
        engine.dispose()
    claimed: dict[str, list[Receipt]] = {}
    books = AbstractSink(sink)
    for pipeline, receipt in books.everything():
        claimed.setdefault(pipeline, []).append(receipt)
    books.close()
    entries = journal.read_all(folder)
    return Evidence(
        entries,
        read.events,
        kept,
        partitions,
        generations,
        batches,
        attempts,
        receipts,
        read.intents,
        claimed,
        collected=read.collected > 0,
    )


def _by_pipeline(connection: sa.Connection, table: sa.Table, *order: sa.ColumnElement[Any]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in connection.execute(sa.select(table).order_by(*order)).mappings():
        found.setdefault(row["pipeline"], []).append(dict(row))
    return found
