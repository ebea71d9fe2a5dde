"""A pipeline whose batches a test delivers by hand, to a real Delta table and without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import yaml

from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger_location import resolve_connection
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.run import Run
from airflow_provider_ckpt.replication.setup import PipelineContext, utcnow
from airflow_provider_ckpt.testing.lane_writer import LaneWriter, none_refused

LINE = '{"id": 10}\n'
SIZE = len(LINE)


class People:
    """Pipeline ``people``: ten lines in one file, in five batches, to a Delta table."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self.ledger = ledger
        self.file = folder / "people.yaml"
        self.inbox = folder / "in"
        self.inbox.mkdir()
        (self.inbox / "a.jsonl").write_text(LINE * 10)
        self.document = {
            "name": "people",
            "source": {"type": "files", "path": str(self.inbox)},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "delta", "path": str(folder / "out")},
            "commit_strategy": {"commit_interval": 2},
            "recovery": {"settle_lag": 0},
        }
        self.file.write_text(yaml.safe_dump(self.document))
        self.pipeline = load(self.file)

    def acquire(self, owner: str = "test") -> Run:
        """A run of its own, as far as Spark is not needed."""
        return acquire(PipelineContext(self.pipeline, self.ledger, resolve_connection, owner))

    def deliver(
        self, run: Run, batches: list[Batch], content_of: Callable[[Batch], BatchContent] | None = None
    ) -> None:
        """Begin batches, and commit them to the table with their receipts; nobody reports it."""
        context = SinkContext(self.ledger.sink_id("people"), "people", run.epoch)
        writer = LaneWriter(registry.open_writer(self.pipeline, None, context), none_refused)
        committer = registry.open_committer(self.pipeline, None, context)
        assert committer is not None
        make = content_of or content
        committer.commit([writer.deliver(task(batch), make(batch)) for batch in self.begin(run, batches)])

    def begin(self, run: Run, batches: list[Batch]) -> list[Batch]:
        """Open attempts."""
        return self.ledger.begin(run.lease, [batch.key for batch in batches], now=utcnow(), run="test")

    @property
    def partition(self) -> str:
        """The one source partition."""
        (name,) = (name for name, record in self.ledger.partitions("people").items() if record.partition.limit is None)
        return name


def task(batch: Batch) -> BatchTask:
    return BatchTask(batch.key, batch.range, batch.attempts, batch.instruction)


def content(batch: Batch) -> BatchContent:
    positions = list(range(batch.range.start, batch.range.end, SIZE))
    rows = {ROW_NUMBER: pa.array(positions, pa.int64()), "id": pa.array([10] * len(positions), pa.int64())}
    return BatchContent(pa.table(rows), [], len(positions), 0)


def filled(ledger: Ledger, folder: Path) -> People:
    """Three batches delivered and settled, the fourth in flight, the fifth planned; nobody holds the lease."""
    made = People(ledger, folder)
    with made.acquire() as run:
        run.plan()
        batches = sorted(run.planned(), key=lambda batch: batch.key)
        made.deliver(run, batches[:3])
        run.settle()
        made.begin(run, batches[3:4])
        ledger.release(run.lease)
    return made
