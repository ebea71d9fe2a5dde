"""The files source passes the conformance suite in each kind of object store; CSV and Parquet in one of them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.testing.source_conformance import SourceConformance
from airflow_provider_ckpt.testing.source_harness import SourceHarness
from tests.integration.connectors.files.object_source_support import Inbox, parquet
from tests.services.object_store import ObjectStoreServer
from tests.services.object_stores import ObjectStores


class JsonObjects(SourceHarness):
    """A prefix that gets one more object with every addition."""

    decode = "json"

    def __init__(self, store: ObjectStoreServer) -> None:
        self._inbox = Inbox(store, decode=self.decode)
        self._held = 0
        self._objects = 0

    def add(self, count: int) -> None:
        data = self.content(range(self._held, self._held + count))
        self._held += count
        self._objects += 1
        self._inbox.put({f"{self._objects:04d}": data})

    def open(self) -> Source:
        return self._inbox.source

    def reader(self, shape: RecordShape) -> Reader:
        return self._inbox.reader(shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return [int(json.loads(value)["id"]) for value in records.column("value").to_pylist()]

    def content(self, ids: range) -> bytes:
        """Return an object's content."""
        return b"".join(b'{"id": %d, "name": "a"}\n' % number for number in ids)


class CsvObjects(JsonObjects):
    """The same with headers and quoted newlines."""

    decode = "csv"

    def content(self, ids: range) -> bytes:
        return b"id,name\r\n" + b"".join(b'%d,"a\r\nb"\r\n' % number for number in ids)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return [int(value.split(b",")[0]) for value in records.column("value").to_pylist()]


class ParquetObjects(JsonObjects):
    """The same with columns and small row groups."""

    decode = "parquet"

    def content(self, ids: range) -> bytes:
        return parquet(pa.table({"id": pa.array(ids, pa.int64())}), group=9)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return [int(number) for number in records.column("id").to_pylist()]


class TestJsonObjects(SourceConformance):
    @pytest.fixture
    def harness(self, object_store: ObjectStoreServer) -> SourceHarness:
        return JsonObjects(object_store)


class TestCsvObjects(SourceConformance):
    @pytest.fixture
    def harness(self, object_stores: ObjectStores) -> SourceHarness:
        return CsvObjects(object_stores.get("versitygw"))


class TestParquetObjects(SourceConformance):
    @pytest.fixture
    def harness(self, object_stores: ObjectStores) -> SourceHarness:
        return ParquetObjects(object_stores.get("versitygw"))
