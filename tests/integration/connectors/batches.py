"""Batches for tests of sinks whose rows have one column ``id``, and functions that read the sink afterwards."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.testing.sink_harness import StoredDeadLetter

LEDGER = "5f0c0d52-8d2c-4a3e-9a35-0a7c3bb3a001"
SIZE = 10


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
    return BatchContent(pa.table(rows), dead_letters(positions[:bad]), SIZE, filtered)


def no_rows(*rejected: int) -> BatchContent:
    """No row, and dead letters of these positions."""
    nothing = pa.table({ROW_NUMBER: pa.array([], pa.int64())})
    return BatchContent(nothing, dead_letters(rejected), len(rejected), 0)


def dead_letters(positions: Sequence[int], error: ErrorInfo | None = None) -> list[DeadLetter]:
    """Dead letters whose value is not UTF-8."""
    error = error or ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, "not JSON")
    return [DeadLetter(p, None, b"\xff%d" % p, error, {"source-file": "x.jsonl"}) for p in positions]


def originals(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """As a lane finds them again for a writer."""
    return [dead_letter for position, error in errors.items() for dead_letter in dead_letters([position], error)]


def expected(*seqs: int) -> list[int]:
    """The rows of whole batches."""
    return [position for seq in sorted(seqs) for position in range(seq * SIZE, (seq + 1) * SIZE)]


def dead_letter_lines(target: Path) -> list[dict[str, Any]]:
    """Every dead letter beside a target directory."""
    found = sorted(target.with_name(f"{target.name}.dead_letters").rglob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


def stored_dead_letters(target: Path, receipts: Iterable[Receipt]) -> list[StoredDeadLetter]:
    """The dead letters beside a target directory that receipts name, by position."""
    counting = {(receipt.key.seq, receipt.epoch, receipt.attempt) for receipt in receipts}
    return sorted(
        (
            StoredDeadLetter(
                line["seq"],
                line["position"],
                base64.b64decode(line["key_base64"]),
                base64.b64decode(line["value_base64"]),
                line["error_type"],
            )
            for line in dead_letter_lines(target)
            if (line["seq"], line["epoch"], line["attempt"]) in counting
        ),
        key=lambda dead_letter: dead_letter.position,
    )
