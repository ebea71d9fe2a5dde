"""A table in one of the formats for the tests of two-phase sinks, and a run of one epoch on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, cast

import pyarrow as pa

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import (
    Committer,
    FileBasedSink,
    Sink,
    SinkContext,
    SinkWithSchemaChanges,
    Writer,
)
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.testing.lane_writer import LaneWriter
from airflow_provider_ckpt.testing.sink_harness import SinkHarness, StoredDeadLetter
from tests.integration.connectors.batches import (
    LEDGER,
    content,
    dead_letter_lines,
    originals,
    stored_dead_letters,
    task,
)
from tests.integration.connectors.interruptions import Step

EVOLVE = {"new_column": "evolve", "wider_type": "evolve", "dropped_column": "keep", "renamed_column": "follow"}
"""A policy that follows every change of columns that it can."""


class TableHarness(ABC):
    """A table that does not exist yet, and what its users and other writers do to it.

    A *wave* is a commit of the sink; those of a table's first run are counted from 1.

    :cvar steps: functions that the sink calls: ``write rows``, ``create`` the table, ``write receipts``,
        ``commit``, ``change columns``, ``check the fence``, and ``open to fence``, with which raising the fence begins;
        a format may have more
    :cvar errors: the library's errors of a commit: ``unknown`` result, ``conflict``, and ``failure`` of the file system
    :cvar changes: what other writers do to a table without setting it back
    :cvar losses: ways in which receipts get lost while all rows are there
    """

    steps: ClassVar[Mapping[str, Step]]
    errors: ClassVar[Mapping[str, type[Exception]]]
    changes: ClassVar[Sequence[Callable[[Any], None]]]
    losses: ClassVar[Sequence[Callable[[Any], None]]]

    place: Path
    """Directory of the table."""

    location: str
    """Location as the sink names it."""

    connection: Connection | None = None
    """Connection of the sink."""

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """Name a table in a folder of its own."""

    @property
    @abstractmethod
    def sink(self) -> Mapping[str, str]:
        """The pipeline's section ``sink``."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Number of the table's newest version."""

    @abstractmethod
    def version_after(self, waves: int) -> int:
        """Number of the version that this many waves of the first run left."""

    @property
    @abstractmethod
    def state(self) -> object:
        """A value that changes with every commit, whoever makes it."""

    @abstractmethod
    def files(self) -> set[str]:
        """Names of all data files in the directory, whether the table knows them or not."""

    @abstractmethod
    def known_files(self) -> set[str]:
        """Names of all data files that are part of the table."""

    @abstractmethod
    def read(self) -> pa.Table:
        """The rows, read file by file in the calling thread."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The rows by id, as any reader of the format sees them."""

    @abstractmethod
    def columns(self) -> list[str]:
        """Names of the columns."""

    @abstractmethod
    def create(self, *, required: bool = False) -> None:
        """Create the table, as somebody else does, with one column ``id``.

        :param required: whether it is not nullable
        """

    @abstractmethod
    def drop(self) -> None:
        """Drop the table, as its owner does."""

    @abstractmethod
    def put_aside(self) -> Callable[[], list[int]]:
        """Take the table away without removing its files; return a function that reads the ids from them."""

    @abstractmethod
    def at_this_version(self) -> Callable[[], list[int]]:
        """Return a function that reads the ids of the version that is the newest now."""

    @abstractmethod
    def restore(self, waves: int) -> None:
        """Give the table the content again that this many waves of the first run left."""

    @abstractmethod
    def open_writer(self) -> Callable[[int], None]:
        """Return a function that appends a row to the table, which it has opened now."""

    @abstractmethod
    def commit_nothing(self) -> None:
        """Commit a version without rows, as another writer."""

    @abstractmethod
    def add_column(self, name: str) -> None:
        """Add a nullable column of strings."""

    @abstractmethod
    def delete(self, condition: str | None = None) -> None:
        """Delete rows, all of them by default."""

    @abstractmethod
    def compact(self) -> None:
        """Write all rows to one file."""

    @abstractmethod
    def clean_up_history(self) -> None:
        """Remove what is kept of older versions."""

    @abstractmethod
    def fake_commit(self, *arguments: Any, **named: Any) -> Any:
        """Commit nothing, and return what the step ``commit`` would return."""

    @abstractmethod
    def contender(self, rate: int) -> Sequence[object]:
        """Arguments of :func:`tests.services.contender.contender`.

        :param rate: commits a second
        """

    def append(self, number: int) -> None:
        """Append a row, as another writer."""
        self.open_writer()(number)

    def ids(self) -> list[int]:
        """The ids in the table, sorted, with repetitions."""
        rows = self.read()
        return sorted(rows.column("id").to_pylist()) if rows.num_columns else []

    def dead_letter_lines(self) -> list[dict[str, Any]]:
        """Every dead letter beside the table."""
        return dead_letter_lines(self.place)

    @property
    def bookkeeping(self) -> Path:
        """Directory of the first run's bookkeeping."""
        return self.place / "_ckpt" / LEDGER / "flights"

    @property
    def nodes(self) -> list[Path]:
        """Files of the chain of receipts, the oldest first."""
        return sorted((self.bookkeeping / "receipts").iterdir())

    def pipeline(self, *, grows: bool = False, replaces: bool = False, follows: bool = False, **extra: Any) -> Pipeline:
        """A pipeline that writes to the table.

        :param grows: whether the table gets the columns that it lacks
        :param replaces: whether each run replaces all rows
        :param follows: whether the table follows changes of the source's columns
        :param extra: more sections
        """
        if follows:
            source = {"type": "postgres", "connection": "shop", "table": "flights", "cursor": "id"}
            document = {"name": "flights", "source": source, "sink": self.sink, "schema": EVOLVE}
            return Pipeline.model_validate({**document, **extra})
        evolution = {"schema_evolution": "add_columns"} if grows else {}
        if replaces:
            source = {"type": "postgres", "connection": "shop", "table": "flights", "mode": "full"}
            sink = {**self.sink, **evolution, "mode": "replace"}
            return Pipeline.model_validate({"name": "flights", "source": source, "sink": sink, **extra})
        return Pipeline.model_validate(
            {
                "name": "flights",
                "source": {"type": "files", "path": "/nowhere"},
                "transform": {"decode": "json", "schema": "id bigint"},
                "sink": {**self.sink, **evolution},
                **extra,
            }
        )


class TableSink(Sink, FileBasedSink, SinkWithSchemaChanges, Protocol):
    """Control side of a two-phase sink."""


@dataclass
class Run:
    """One process holding one epoch."""

    table: TableHarness
    epoch: int = 1
    ledger: str = LEDGER
    pinned: bool = False
    grows: bool = False
    replaces: bool = False
    follows: bool = False
    time_budget: str = "1h"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        strategy = {"consumer": {"strategy": "pinned"}} if self.pinned else {}
        self.pipeline = self.table.pipeline(
            grows=self.grows,
            replaces=self.replaces,
            follows=self.follows,
            run={"time_budget": self.time_budget},
            **strategy,
            **self.extra,
        )
        self.context = SinkContext(self.ledger, self.pipeline.name, self.epoch)
        self.sink = cast("TableSink", registry.open_sink(self.pipeline, self.table.connection, self.context))
        self.committer = cast("Committer", registry.open_committer(self.pipeline, self.table.connection, self.context))

    @property
    def writer(self) -> LaneWriter:
        """A lane's writer, as each wave has new ones."""
        return LaneWriter(registry.open_writer(self.pipeline, self.table.connection, self.context), originals)

    def fence(self) -> Self:
        """Take over."""
        self.sink.fence(self.epoch)
        return self

    def stage(self, *seqs: int, attempt: int = 1) -> list[Outcome]:
        """Stage whole batches, as a lane does."""
        writer = self.writer
        return [writer.deliver(task(seq, attempt=attempt), content(seq)) for seq in seqs]

    def commit(self, *staged: Outcome) -> list[Outcome]:
        """Commit staged batches."""
        return list(self.committer.commit(staged))

    def send(self, *seqs: int) -> list[Outcome]:
        """Stage and commit whole batches."""
        return self.commit(*self.stage(*seqs))

    @property
    def receipted(self) -> list[int]:
        """Seqs of all receipts."""
        return [receipt.key.seq for receipt in self.sink.receipts({})]


class TableSinkHarness(SinkHarness):
    """A table for the suite that every sink passes.

    :param table: the table
    """

    def __init__(self, table: TableHarness) -> None:
        self._table = table
        self._pipeline = table.pipeline()

    def sink(self, context: SinkContext) -> Sink:
        return registry.open_sink(self._pipeline, self._table.connection, context)

    def writer(self, context: SinkContext) -> Writer:
        return registry.open_writer(self._pipeline, self._table.connection, context)

    def committer(self, context: SinkContext) -> Committer | None:
        return registry.open_committer(self._pipeline, self._table.connection, context)

    def target(self) -> list[int]:
        return self._table.ids()

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        return stored_dead_letters(self._table.place, self.sink(context).receipts({}))
