"""The files source passes the conformance suite for JSON lines, CSV and Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.files.parquet_reader import ParquetReader
from airflow_provider_ckpt.connectors.files.parquet_source import ParquetSource
from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.testing.source_conformance import SourceConformance
from airflow_provider_ckpt.testing.source_harness import SourceHarness
from tests.integration.connectors.files.files_support import parquet_pipeline, pipeline, put, put_rows


class JsonFiles(SourceHarness):
    """A directory that gets one more file with every addition."""

    decode = "json"
    head = b""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pipeline = pipeline(directory, decode=self.decode)
        self._held = 0
        self._files = 0

    def add(self, count: int) -> None:
        records = b"".join(self.record(number) for number in range(self._held, self._held + count))
        self._held += count
        self._files += 1
        put(self._directory / f"{self._files}.txt", self.head + records, at=self._files)

    def open(self) -> Source:
        return FilesSource(self._pipeline)

    def reader(self, shape: RecordShape) -> Reader:
        return FilesReader(self._pipeline, None, shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return [self.number(value) for value in records.column("value").to_pylist()]

    def record(self, number: int) -> bytes:
        return json.dumps({"id": number, "name": "ä\n"}, ensure_ascii=False).encode() + b"\n"

    def number(self, value: bytes) -> int:
        return int(json.loads(value)["id"])


class CsvFiles(JsonFiles):
    """The same with headers, quoted newlines and Windows line ends."""

    decode = "csv"
    head = b"id,name\r\n"

    def record(self, number: int) -> bytes:
        return b'%d,"a\r\nb ""c"""\r\n' % number

    def number(self, value: bytes) -> int:
        return int(value.split(b",")[0])


class ParquetFiles(SourceHarness):
    """The same with columns and small row groups."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pipeline = parquet_pipeline(directory)
        self._held = 0
        self._files = 0

    def add(self, count: int) -> None:
        ids = pa.array(range(self._held, self._held + count), pa.int64())
        self._held += count
        self._files += 1
        put_rows(self._directory / f"{self._files}.parquet", pa.table({"id": ids}), at=self._files, group=9)

    def open(self) -> Source:
        return ParquetSource(self._pipeline)

    def reader(self, shape: RecordShape) -> Reader:
        return ParquetReader(self._pipeline, None, shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return [int(number) for number in records.column("id").to_pylist()]


class TestJsonFiles(SourceConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SourceHarness:
        return JsonFiles(tmp_path)


class TestCsvFiles(SourceConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SourceHarness:
        return CsvFiles(tmp_path)


class TestParquetFiles(SourceConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SourceHarness:
        return ParquetFiles(tmp_path)
