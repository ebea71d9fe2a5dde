"""What the tests of the delta sink share: a run of one epoch at a table, and batches to send."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.delta.committer import DeltaCommitter
from airflow_provider_ckpt.connectors.delta.sink import DeltaSink
from airflow_provider_ckpt.connectors.delta.writer import DeltaWriter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask, Outcome
from tests.services.delta import read_delta

LEDGER = "5f0c0d52-8d2c-4a3e-9a35-0a7c3bb3a001"
SIZE = 10
LONG = Schema([Field("id", PrimitiveType("long"))])


def pipeline(table: Path | str, **extra: Any) -> Pipeline:
    """A pipeline that writes to ``table``."""
    return Pipeline.model_validate(
        {
            "name": "flights",
            "source": {"type": "files", "path": "/nowhere"},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "delta", "path": str(table)},
            **extra,
        }
    )


def growing(pipeline: Pipeline) -> Pipeline:
    """The same, with a table that gets the columns that it has not."""
    document = pipeline.document()
    document["sink"]["schema_evolution"] = "add_columns"
    return Pipeline.model_validate(document)


def task(
    seq: int, *, attempt: int = 1, partition: str = "files", instruction: Instruction = Instruction.DELIVER
) -> BatchTask:
    """Batch ``seq``, of ten positions."""
    key = BatchKey(1, partition, seq)
    return BatchTask(key, Range(seq * SIZE, (seq + 1) * SIZE), attempt, instruction, bound=1000)


def content(seq: int, *, bad: int = 0, filtered: int = 0, **columns: pa.Array) -> BatchContent:
    """Ten records of batch ``seq``: first ``bad`` rejected ones, then ``filtered`` ones, the rest to send."""
    positions = list(range(seq * SIZE, (seq + 1) * SIZE))
    keep = positions[bad + filtered :]
    rows = {ROW_NUMBER: pa.array(keep, pa.int64()), "id": pa.array(keep, pa.int64())} | columns
    return BatchContent(pa.table(rows), dead_letters(positions[:bad]), SIZE, filtered, original)


def dead_letters(positions: list[int], error: ErrorInfo | None = None) -> list[DeadLetter]:
    """Dead letters whose value is not UTF-8."""
    error = error or ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, "not JSON")
    return [DeadLetter(p, None, b"\xff%d" % p, error, {"source-file": "x.jsonl"}) for p in positions]


def original(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """As a lane finds them again for a writer."""
    return [dead_letter for position, error in errors.items() for dead_letter in dead_letters([position], error)]


@dataclass
class Run:
    """One process holding one epoch."""

    table: Path
    epoch: int = 1
    ledger: str = LEDGER
    pinned: bool = False
    grows: bool = False
    time_budget: str = "1h"

    def __post_init__(self) -> None:
        extra = {"consumer": {"strategy": "pinned"}} if self.pinned else {}
        self.pipeline = pipeline(self.table, run={"time_budget": self.time_budget}, **extra)
        if self.grows:
            self.pipeline = growing(self.pipeline)
        context = SinkContext(self.ledger, self.pipeline.name, self.epoch)
        self.sink = DeltaSink(self.pipeline, None, context)
        self.writer = DeltaWriter(self.pipeline, None, context)
        self.committer = DeltaCommitter(self.pipeline, None, context)

    def fence(self) -> Run:
        """Take over."""
        self.sink.fence(self.epoch)
        return self

    def stage(self, *seqs: int, attempt: int = 1) -> list[Outcome]:
        """Stage whole batches, as lanes do."""
        return [self.writer.deliver(task(seq, attempt=attempt), content(seq)) for seq in seqs]

    def send(self, *seqs: int) -> list[Outcome]:
        """Stage and commit whole batches."""
        return list(self.committer.commit(self.stage(*seqs)))

    @property
    def receipted(self) -> list[int]:
        """Seqs of all receipts."""
        return [receipt.key.seq for receipt in self.sink.receipts({})]


def ids(table: Path) -> list[int]:
    """The target's rows, as any reader of Delta sees them."""
    return sorted(read_delta(table).column("id").to_pylist())


def expected(*seqs: int) -> list[int]:
    """The rows of whole batches."""
    return [position for seq in sorted(seqs) for position in range(seq * SIZE, (seq + 1) * SIZE)]


def data_files(table: Path) -> set[str]:
    """Every data file in the directory, whether the log knows it or not."""
    return {path.name for path in table.glob("*.parquet")}


def logged_files(table: Path) -> set[str]:
    """Every data file that is part of the table."""
    return {Path(uri).name for uri in DeltaTable(table).file_uris()}


def letter_lines(table: Path) -> list[dict[str, Any]]:
    """Every dead letter beside the table."""
    found = sorted(table.with_name(f"{table.name}.dead_letters").rglob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


class Killed(BaseException):
    """What a test raises where a process would die: no code of ours may catch it."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def after(real: Callable[..., Any], then: Callable[[], object]) -> Callable[..., Any]:
    """``real``, and then something else, as another process would do it."""

    def wrapper(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        then()
        return result

    return wrapper


def before(real: Callable[..., Any], first: Callable[[], object]) -> Callable[..., Any]:
    """Something else, and then ``real``."""

    def wrapper(*args: Any, **named: Any) -> Any:
        first()
        return real(*args, **named)

    return wrapper


def once(action: Callable[[], object]) -> Callable[[], None]:
    """``act`` the first time only."""
    pending = [action]

    def run() -> None:
        if pending:
            pending.pop()()

    return run
