"""Source: a table whose primary key SQLite assigns.

SQLite has one writer at a time, so rows are committed in the order of their keys: when a key is visible, no smaller one
can appear. AUTOINCREMENT never assigns a key twice. That makes the key a position, and the greatest key a closed bound.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.connectors.source_plan import (
    Plan,
    PlannedBatch,
    PlanRequest,
    SourceFile,
    SourcePartition,
    Start,
)
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import START, Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from ckpt_sqlite.connector import SqliteSourceSection
from ckpt_sqlite.database import SYSTEM, identity, open_file, quote, table_sql

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.connection import Connection

_SPARK_TYPES = {"INTEGER": "bigint", "INT": "bigint", "REAL": "double", "TEXT": "string", "BLOB": "binary"}
_BATCH = 10_000
"""Number of records in a batch if the pipeline does not say."""


class SqliteSource:
    """Planning side of the source.

    :param pipeline: the pipeline
    :param connection: not used
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        self._keys = SqliteSourceSection.of(pipeline)
        self._pipeline = pipeline.name
        self._opened: sqlite3.Connection | None = None

    def check(self) -> None:
        """Refuse a table that is missing, whose keys may be assigned twice, or whose values may be of any type."""
        sql = table_sql(self._database, self._keys.table)
        if sql is None:
            raise ConfigError(
                f"source table {self._keys.table} does not exist in {self._keys.path}.",
                pipeline=self._pipeline,
                hint="Correct source.table.",
            )
        for word in ("AUTOINCREMENT", "STRICT"):
            if not re.search(rf"\b{word}\b", sql, re.IGNORECASE):
                raise ConfigError(
                    f"source table {self._keys.table} is not {word}.",
                    pipeline=self._pipeline,
                    hint="Create it as (id INTEGER PRIMARY KEY AUTOINCREMENT, ...) STRICT.",
                )
        self.shape()

    def reads(self, output: Output) -> bool:
        """Return whether the sink writes to the table that the source reads."""
        own = identity(self._keys.path, self._keys.table)
        return isinstance(output, WrittenTarget) and (output.system, output.identity) == (SYSTEM, own)

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the table as the only partition."""
        return [SourcePartition(self._keys.table, identity(self._keys.path, self._keys.table))]

    def start(self, partition: str, start_from: str | int) -> Start:
        """Return the position at which the table is first read."""
        if isinstance(start_from, int):
            return Start(start_from)
        return Start(START if start_from == "earliest" else self._bound())

    def shape(self) -> RecordShape:
        """Return the table's columns and their Spark types."""
        columns = self._database.execute(f"PRAGMA table_info({quote(self._keys.table)})").fetchall()
        unsupported = [f"{name} {kind}" for _, name, kind, *_ in columns if kind not in _SPARK_TYPES]
        if unsupported:
            raise ConfigError(
                f"source table {self._keys.table} has columns of unsupported types: {', '.join(unsupported)}.",
                pipeline=self._pipeline,
                hint=f"Supported: {', '.join(_SPARK_TYPES)}.",
            )
        return RecordShape(False, [(name, _SPARK_TYPES[kind]) for _, name, kind, *_ in columns])

    def plan(self, request: PlanRequest) -> Plan:
        """Split each range into batches; a range without an end reaches to the greatest key."""
        batches: list[PlannedBatch] = []
        bound, more, left = self._bound(), False, request.max_records
        for todo in request.ranges:
            end = bound if todo.end is None else todo.end
            found, rest = self._split(todo.partition, todo.start, end, request, left)
            if not found and todo.end is not None and todo.end > todo.start:  # its rows are gone; the checkpoint passes
                found = [PlannedBatch(todo.partition, Range(todo.start, todo.end), 0)]
            if found and todo.end is not None and not rest:
                found[-1] = PlannedBatch(todo.partition, Range(found[-1].range.start, todo.end), found[-1].records)
            batches += found
            left -= sum(batch.records or 0 for batch in found)
            more = more or rest
        bounds = {todo.partition: bound for todo in request.ranges if todo.needs_bound}
        return Plan(batches, bounds=bounds, more=more)

    def may_have_late_records(self) -> bool:
        """Return False: no row can appear below the greatest key."""
        return False

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:
        """Return None: no row can appear in a range that was read."""
        return None

    def positions(self, partition: str, span: Range) -> Sequence[int]:
        """Return nothing; it is only called for a source with digests."""
        return []

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:
        """Return the tasks as they are: a reader finds its rows by the range."""
        return tasks

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _split(
        self, partition: str, start: int, end: int, request: PlanRequest, most: int
    ) -> tuple[list[PlannedBatch], bool]:
        """Return the batches of a range, and whether it has more records than may be planned."""
        size = request.records_per_batch or _BATCH
        sql = f"SELECT rowid FROM {quote(self._keys.table)} WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
        keys = (key for (key,) in self._database.execute(sql, [start, end]))
        batches: list[PlannedBatch] = []
        while chunk := list(islice(keys, size)):
            if most < len(chunk) and (batches or most <= 0):
                return batches, True
            batches.append(PlannedBatch(partition, Range(start, chunk[-1] + 1), len(chunk)))
            start, most = chunk[-1] + 1, most - len(chunk)
        return batches, False

    def _bound(self) -> int:
        """Return the position after the greatest key; no row can appear before it any more."""
        ((key,),) = self._database.execute(f"SELECT max(rowid) FROM {quote(self._keys.table)}")
        return START + 1 if key is None else int(key) + 1

    @property
    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = open_file(self._keys.path, "source.path")
        return self._opened


class SqliteReader:
    """Reading side of the source, in a lane.

    :param pipeline: the pipeline
    :param connection: not used
    :param shape: the table's columns
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        self._keys = SqliteSourceSection.of(pipeline)
        self._columns = shape.columns
        self._opened: sqlite3.Connection | None = None

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task's range in the order of their keys."""
        import pyarrow as pa

        types = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary()}
        schema = pa.schema([(POSITION, pa.int64()), *((name, types[kind]) for name, kind in self._columns)])
        columns = ", ".join(quote(name) for name, _ in self._columns)
        sql = f"SELECT rowid, {columns} FROM {quote(self._keys.table)} WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
        if self._opened is None:
            self._opened = open_file(self._keys.path, "source.path")
        try:
            rows = self._opened.execute(sql, [task.range.start, task.range.end])
            while chunk := rows.fetchmany(_BATCH):
                by_column = zip(schema, zip(*chunk, strict=True), strict=True)
                yield pa.record_batch([pa.array(values, field.type) for field, values in by_column], schema=schema)
        except sqlite3.Error as error:
            raise SourceError(f"reading {self._keys.table}: {error}.", batch=str(task.key), recoverable=True) from error

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers that locate a row."""
        return {
            "source-table": self._keys.table,
            "source-partition": task.key.source,
            "source-position": str(position),
        }

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
