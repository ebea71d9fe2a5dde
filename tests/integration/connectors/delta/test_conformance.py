"""The delta sink does what every sink must: on a table that exists, and on one that the first batch creates."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.connectors.delta.committer import DeltaCommitter
from airflow_provider_ckpt.connectors.delta.sink import DeltaSink
from airflow_provider_ckpt.connectors.delta.writer import DeltaWriter
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, SinkContext, Writer
from tests.integration.connectors.conformance_sink import SinkConformance, SinkHarness, StoredLetter
from tests.integration.connectors.delta.delta_support import ids, letter_lines, pipeline


class DeltaHarness(SinkHarness):
    """A Delta table in a directory of its own."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._pipeline = pipeline(table)

    def sink(self, context: SinkContext) -> Sink:
        return DeltaSink(self._pipeline, None, context)

    def writer(self, context: SinkContext) -> Writer:
        return DeltaWriter(self._pipeline, None, context)

    def committer(self, context: SinkContext) -> Committer:
        return DeltaCommitter(self._pipeline, None, context)

    def target(self) -> list[int]:
        return ids(self._table) if DeltaTable.is_deltatable(str(self._table)) else []

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
                for line in letter_lines(self._table)
                if (line["seq"], line["epoch"], line["attempt"]) in counting
            ),
            key=lambda dead_letter: dead_letter.position,
        )


class TestNewTable(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SinkHarness:
        return DeltaHarness(tmp_path / "flights")


class TestExistingTable(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SinkHarness:
        DeltaTable.create(tmp_path / "flights", Schema([Field("id", PrimitiveType("long"), nullable=False)]))
        harness = DeltaHarness(tmp_path / "flights")
        harness.refused = [None]
        return harness
