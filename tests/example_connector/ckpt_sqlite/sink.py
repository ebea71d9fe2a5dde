"""Control side of the sink: checks, fence and receipts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.refuse_fenced_run import refuse_if_fenced
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.replay_content import Replay
from ckpt_sqlite.bookkeeping import Bookkeeping
from ckpt_sqlite.connector import SqliteSinkSection
from ckpt_sqlite.database import SYSTEM, identity, open_file, quote, table_sql, transaction

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.connection import Connection

_REPLAY, _FILES = "replay", "files"
_TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "void")


class SqliteSink:
    """Sink that writes to a table; rows, dead letters and receipt of a batch are in one transaction.

    :param pipeline: the pipeline
    :param connection: not used
    :param context: ids of ledger and pipeline, and the epoch of the run
    """

    exactly_once = True

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._keys = SqliteSinkSection.of(pipeline)
        self._context = context
        self._opened: sqlite3.Connection | None = None

    @property
    def location(self) -> str:
        """Address of the target, the same in every run."""
        return f"sqlite://{self._keys.path}/{self._keys.table}"

    def check(self) -> None:
        """Refuse a table that does not exist."""
        if table_sql(self._database, self._keys.table) is None:
            raise ConfigError(
                f"target table {self._keys.table} does not exist in {self._keys.path}.",
                pipeline=self._context.pipeline,
                hint="Create it, or correct sink.table.",
            )

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Refuse columns that the table lacks, and types that SQLite cannot store."""
        rows = self._database.execute(f"PRAGMA table_info({quote(self._keys.table)})")
        names = {name for _, name, *_ in rows}
        wrong = [f"{name} {kind}" for name, kind in columns if name not in names or kind not in _TYPES]
        if wrong:
            raise ConfigError(
                f"target table {self._keys.table} cannot take {', '.join(wrong)}; it has {', '.join(sorted(names))}.",
                pipeline=self._context.pipeline,
                hint="Name or cast the columns in transform.select.",
            )

    def outputs(self) -> Sequence[Output]:
        """Return the target table."""
        return [WrittenTarget("sink.table", self._keys.table, SYSTEM, identity(self._keys.path, self._keys.table))]

    def claims(self) -> Claims:
        """Return the epochs and ledgers of the pipeline's fences, and the target's identity."""
        fences = self._bookkeeping.fences()
        target = identity(self._keys.path, self._keys.table)
        return Claims(max(fences.values(), default=0), frozenset(fences), target)

    def create_bookkeeping(self) -> None:
        """Create the tables for fence, receipts and dead letters."""
        self._bookkeeping.create()

    def fence(self, epoch: int) -> None:
        """Raise the fence. A writer of an older epoch reads it in its own transaction, so it cannot commit any more."""
        with transaction(self._database):
            fenced = self._bookkeeping.epoch()
            refuse_if_fenced(fenced, epoch, self._keys.path, self._context.pipeline)
            self._bookkeeping.raise_fence(epoch)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the receipts that the ledger does not know, in the order of their keys."""
        if self._bookkeeping.exists():
            partitions = self._bookkeeping.partitions()
            found = [item for name in partitions for item in self._bookkeeping.receipts(name, known.get(name))]
            yield from sorted(found, key=lambda receipt: receipt.key)

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return the batches that have no receipt."""
        exists = self._bookkeeping.exists()
        return [key for key in keys if not exists or self._bookkeeping.receipt(key) is None]

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of some attempts."""
        for source in sources:
            yield from self._bookkeeping.dead_letters(source)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store the list of dead letters that a side partition sends again."""
        self._bookkeeping.store_document(_REPLAY, partition, replay.to_json())

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the stored replays of side partitions."""
        stored = self._documents(_REPLAY)
        return {name: Replay.from_json(stored[name]) for name in partitions if name in stored}

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered files, if the source discovers files."""
        self._bookkeeping.store_document(_FILES, files.name, files.to_json())

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists whose first file has at least the given ordinal."""
        stored = map(FileList.from_json, self._documents(_FILES).values())
        return [files for files in stored if files.first >= first]

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of rows; counting is cheap enough to do it always."""
        ((count,),) = self._database.execute(f"SELECT count(*) FROM {quote(self._keys.table)}")
        return int(count)

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _documents(self, kind: str) -> dict[str, Any]:
        found = self._bookkeeping.documents(kind) if self._bookkeeping.exists() else {}
        return cast("dict[str, Any]", found)

    @property
    def _bookkeeping(self) -> Bookkeeping:
        return Bookkeeping(self._database, self._context)

    @property
    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = open_file(self._keys.path, "sink.path")
        return self._opened
