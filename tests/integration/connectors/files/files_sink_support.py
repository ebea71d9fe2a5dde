"""Support for the tests of the files sink: a run of one epoch on a directory, and the files that readers see."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.files.sink import FilesSink
from airflow_provider_ckpt.connectors.files.writer import FilesWriter
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.core.wave_messages import Outcome
from tests.integration.connectors.batches import LEDGER, content, task


def pipeline(directory: Path | str, form: str = "jsonl", *, files_may_go: bool = False, **extra: Any) -> Pipeline:
    """A pipeline that writes to ``directory``."""
    return Pipeline.model_validate(
        {
            "name": "flights",
            "source": {"type": "files", "path": "/nowhere"},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "files", "path": str(directory), "format": form, "files_may_go": files_may_go},
            **extra,
        }
    )


@dataclass
class Run:
    """One process holding one epoch."""

    directory: Path
    epoch: int = 1
    form: str = "jsonl"
    files_may_go: bool = False

    def __post_init__(self) -> None:
        self.pipeline = pipeline(self.directory, self.form, files_may_go=self.files_may_go)
        context = SinkContext(LEDGER, self.pipeline.name, self.epoch)
        self.sink = FilesSink(self.pipeline, None, context)
        self.writer = FilesWriter(self.pipeline, None, context)

    def fence(self) -> Run:
        """Take over."""
        self.sink.check()
        self.sink.fence(self.epoch)
        return self

    def send(self, *seqs: int, attempt: int = 1, bad: int = 0) -> list[Outcome]:
        """Deliver whole batches."""
        return [self.writer.deliver(task(seq, attempt=attempt), content(seq, bad=bad)) for seq in seqs]

    def write(self, seq: int, **columns: pa.Array) -> Outcome:
        """Deliver ten rows of these columns too."""
        some: BatchContent = content(seq, **columns)
        return self.writer.deliver(task(seq), some)

    def receipted(self, known: Mapping[str, KnownReceipts] | None = None) -> list[int]:
        """Seqs of all receipts."""
        return [receipt.key.seq for receipt in self.sink.receipts(known or {})]


def rows(directory: Path) -> list[dict[str, Any]]:
    """The rows of all visible files, as any reader sees them: hidden files and directories are left out."""
    found: list[dict[str, Any]] = []
    for path in visible(directory):
        if path.suffix == ".jsonl":
            found += [json.loads(line) for line in path.read_bytes().splitlines()]
        elif path.suffix == ".csv":
            with path.open(newline="") as file:
                found += list(csv.DictReader(file))
        else:
            found += pq.ParquetFile(path).read(use_threads=False).to_pylist()
    return found


def ids(directory: Path) -> list[int]:
    """The ids of all visible rows, sorted, with repetitions."""
    return sorted(int(row["id"]) for row in rows(directory))


def visible(directory: Path) -> list[Path]:
    """The files that a reader of the directory sees."""
    return sorted(path for path in directory.glob("*") if not path.name.startswith(("_", ".")))


def own(directory: Path, name: str) -> list[str]:
    """Return the content of one of the sink's own directories."""
    return sorted(path.name for path in (directory / "_ckpt" / LEDGER / "flights" / name).iterdir())
