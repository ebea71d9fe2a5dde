"""What the tests of the iceberg sink share: a run of one epoch at a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.iceberg.committer import IcebergCommitter
from airflow_provider_ckpt.connectors.iceberg.sink import IcebergSink
from airflow_provider_ckpt.connectors.iceberg.writer import IcebergWriter
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.wave import Outcome
from tests.integration.connectors.delta.delta_support import LEDGER, content, growing, task
from tests.services.iceberg import IcebergService

TABLE = "air.flights"


def pipeline(**extra: Any) -> Pipeline:
    """A pipeline that writes to the table."""
    return Pipeline.model_validate(
        {
            "name": "flights",
            "source": {"type": "files", "path": "/nowhere"},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "iceberg", "connection": "lake", "table": TABLE},
            **extra,
        }
    )


@dataclass
class Run:
    """One process holding one epoch."""

    lake: IcebergService
    epoch: int = 1
    ledger: str = LEDGER
    pinned: bool = False
    grows: bool = False
    time_budget: str = "1h"

    def __post_init__(self) -> None:
        extra = {"consumer": {"strategy": "pinned"}} if self.pinned else {}
        self.pipeline = pipeline(run={"time_budget": self.time_budget}, **extra)
        if self.grows:
            self.pipeline = growing(self.pipeline)
        self.context = SinkContext(self.ledger, self.pipeline.name, self.epoch)
        self.sink = IcebergSink(self.pipeline, self.lake.connection, self.context)
        self.committer = IcebergCommitter(self.pipeline, self.lake.connection, self.context)

    @property
    def writer(self) -> IcebergWriter:
        """A lane's writer, as each wave has new ones."""
        return IcebergWriter(self.pipeline, self.lake.connection, self.context)

    def fence(self) -> Run:
        """Take over."""
        self.sink.fence(self.epoch)
        return self

    def stage(self, *seqs: int, attempt: int = 1) -> list[Outcome]:
        """Stage whole batches, as lanes do."""
        writer = self.writer
        return [writer.deliver(task(seq, attempt=attempt), content(seq)) for seq in seqs]

    def send(self, *seqs: int) -> list[Outcome]:
        """Stage and commit whole batches."""
        return list(self.committer.commit(self.stage(*seqs)))

    @property
    def receipted(self) -> list[int]:
        """Seqs of all receipts."""
        return [receipt.key.seq for receipt in self.sink.receipts({})]


def ids(lake: IcebergService) -> list[int]:
    """The target's rows, as any reader of Iceberg sees them."""
    rows = lake.rows(TABLE)
    return sorted(rows.column("id").to_pylist()) if rows.num_columns else []


def place(lake: IcebergService) -> Path:
    """The table's directory."""
    return lake.folder / "warehouse" / "air" / "flights"


def data_files(lake: IcebergService) -> set[str]:
    """Every data file in the directory, whether the table knows it or not."""
    return {path.name for path in place(lake).rglob("*.parquet")}


def known_files(lake: IcebergService) -> set[str]:
    """Every data file that is part of the table."""
    return {path.name for path in lake.files(TABLE)}


def letter_lines(lake: IcebergService) -> list[dict[str, Any]]:
    """Every dead letter beside the table."""
    found = sorted(place(lake).with_name("flights.dead_letters").rglob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]
