"""The connector passes the conformance suites."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.testing.declaration_conformance import DeclarationConformance
from airflow_provider_ckpt.testing.sink_conformance import RefusingSinkConformance
from airflow_provider_ckpt.testing.sink_harness import SinkHarness, StoredDeadLetter
from airflow_provider_ckpt.testing.source_conformance import ShrinkingSourceConformance
from airflow_provider_ckpt.testing.source_harness import ShrinkingSourceHarness
from ckpt_sqlite.sink import SqliteSink
from ckpt_sqlite.source import SqliteReader, SqliteSource
from ckpt_sqlite.writer import SqliteWriter


class TestDeclaration(DeclarationConformance):
    kind = "sqlite"
    source = {"path": "/data/shop.db", "table": "orders"}
    sink = {"path": "/data/lake.db", "table": "orders"}


class Table(ShrinkingSourceHarness):
    """A table with a column ``number``."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._numbers = 0
        source = {"type": "sqlite", "path": str(file), "table": "numbered"}
        self._pipeline = build({"name": "orders", "source": source, "sink": {**source, "table": "target"}})
        self._execute("CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER) STRICT", [[]])

    def add(self, count: int) -> None:
        first, self._numbers = self._numbers, self._numbers + count
        self._execute("INSERT INTO numbered (number) VALUES (?)", [[number] for number in range(first, self._numbers)])

    def remove(self, first: int, end: int) -> None:
        self._execute("DELETE FROM numbered WHERE number >= ? AND number < ?", [[first, end]])

    def open(self) -> Source:
        return SqliteSource(self._pipeline, None)

    def reader(self, shape: RecordShape) -> Reader:
        return SqliteReader(self._pipeline, None, shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return list(records.column("number").to_pylist())

    def _execute(self, sql: str, values: list[list[int]]) -> None:
        with closing(sqlite3.connect(self._file)) as database, database:
            database.executemany(sql, values)


class Target(SinkHarness):
    """A table that refuses null."""

    refused = [None]

    def __init__(self, file: Path) -> None:
        self._file = file
        target = {"type": "sqlite", "path": str(file), "table": "target"}
        self._pipeline = build({"name": "orders", "source": {**target, "table": "numbered"}, "sink": target})
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE target (id INTEGER NOT NULL)")

    def sink(self, context: SinkContext) -> Sink:
        return SqliteSink(self._pipeline, None, context)

    def writer(self, context: SinkContext) -> Writer:
        return SqliteWriter(self._pipeline, None, context)

    def target(self) -> list[int]:
        return [number for (number,) in self._rows("SELECT id FROM target ORDER BY id")]

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        return [
            StoredDeadLetter(*row)
            for row in self._rows(
                "SELECT seq, position, key, value, error ->> 'type' FROM ckpt_dead_letter ORDER BY position"
            )
        ]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._file)) as database:
            return database.execute(sql).fetchall()


class TestSource(ShrinkingSourceConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> ShrinkingSourceHarness:
        return Table(tmp_path / "source.db")


class TestSink(RefusingSinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SinkHarness:
        return Target(tmp_path / "target.db")
