"""The iceberg sink does what every sink must: on a new table, and on a partitioned one in a PostgreSQL catalog."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField

from airflow_provider_ckpt.connectors.iceberg.committer import IcebergCommitter
from airflow_provider_ckpt.connectors.iceberg.sink import IcebergSink
from airflow_provider_ckpt.connectors.iceberg.writer import IcebergWriter
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, SinkContext, Writer
from tests.integration.connectors.conformance_sink import SinkConformance, SinkHarness, StoredLetter
from tests.integration.connectors.iceberg.iceberg_support import TABLE, ids, letter_lines, pipeline
from tests.services.iceberg import IcebergService


class IcebergHarness(SinkHarness):
    """An Iceberg table in a catalog of its own."""

    def __init__(self, lake: IcebergService) -> None:
        self._lake = lake
        self._pipeline = pipeline()

    def sink(self, context: SinkContext) -> Sink:
        return IcebergSink(self._pipeline, self._lake.connection, context)

    def writer(self, context: SinkContext) -> Writer:
        return IcebergWriter(self._pipeline, self._lake.connection, context)

    def committer(self, context: SinkContext) -> Committer:
        return IcebergCommitter(self._pipeline, self._lake.connection, context)

    def target(self) -> list[int]:
        return ids(self._lake)

    def dead_letters(self, context: SinkContext) -> list[StoredLetter]:
        counting = {(r.key.seq, r.epoch, r.attempt) for r in self.sink(context).receipts({})}
        return sorted(
            (
                StoredLetter(
                    line["seq"],
                    line["position"],
                    base64.b64decode(line["key_base64"]),
                    base64.b64decode(line["value_base64"]),
                    line["error_type"],
                )
                for line in letter_lines(self._lake)
                if (line["seq"], line["epoch"], line["attempt"]) in counting
            ),
            key=lambda dead_letter: dead_letter.position,
        )


class TestNewTable(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SinkHarness:
        return IcebergHarness(IcebergService(tmp_path))


class TestPartitionedTableInPostgres(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path, postgres_database: str) -> SinkHarness:
        lake = IcebergService(tmp_path, postgres_database)
        schema = Schema(NestedField(1, "id", LongType(), required=True))
        spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
        with lake.catalog() as catalog:
            catalog.create_namespace("air")
            catalog.create_table(TABLE, schema, partition_spec=spec)
        harness = IcebergHarness(lake)
        harness.refused = [None]
        return harness
