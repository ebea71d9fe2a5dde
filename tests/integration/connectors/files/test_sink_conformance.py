"""The files sink passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.files.sink import FilesSink
from airflow_provider_ckpt.connectors.files.writer import FilesWriter
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from airflow_provider_ckpt.testing.sink_conformance import SinkConformance
from airflow_provider_ckpt.testing.sink_harness import SinkHarness, StoredDeadLetter
from tests.integration.connectors.batches import stored_dead_letters
from tests.integration.connectors.files.files_sink_support import ids, pipeline


class FilesHarness(SinkHarness):
    """A directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pipeline = pipeline(directory)

    def sink(self, context: SinkContext) -> Sink:
        return FilesSink(self._pipeline, None, context)

    def writer(self, context: SinkContext) -> Writer:
        return FilesWriter(self._pipeline, None, context)

    def target(self) -> list[int]:
        return ids(self._directory)

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        return stored_dead_letters(self._directory, self.sink(context).receipts({}))


class TestFilesSink(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SinkHarness:
        return FilesHarness(tmp_path / "out")
