"""The files sink does what every sink must."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.files.sink import FilesSink
from airflow_provider_ckpt.connectors.files.writer import FilesWriter
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from tests.integration.connectors.conformance_sink import SinkConformance, SinkHarness, StoredLetter
from tests.integration.connectors.delta.delta_support import letter_lines
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
                for line in letter_lines(self._directory)
                if (line["seq"], line["epoch"], line["attempt"]) in counting
            ),
            key=lambda dead_letter: dead_letter.position,
        )


class TestFilesSink(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SinkHarness:
        return FilesHarness(tmp_path / "out")
