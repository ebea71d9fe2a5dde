"""Support for the tests of the files source: a directory, a pipeline, and functions that plan, locate and read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest, RangeToPlan, SourceFile
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask


def pipeline(
    path: Path | str, *, decode: str = "json", schema: str = "id bigint, name string", **source: Any
) -> Pipeline:
    """A pipeline that reads ``path``."""
    return Pipeline.model_validate(
        {
            "name": "inbox",
            "source": {"type": "files", "path": str(path), **source},
            "transform": {"decode": decode, "schema": schema},
            "sink": {"type": "delta", "path": "/nowhere"},
        }
    )


def parquet_pipeline(path: Path | str, schema: str | None = None, **parts: Any) -> Pipeline:
    """A pipeline that reads Parquet files from ``path``.

    :param schema: the columns that are wanted
    """
    return Pipeline.model_validate(
        {
            "name": "inbox",
            "source": {"type": "files", "path": str(path), "format": "parquet"},
            "transform": {"schema": schema},
            "sink": {"type": "delta", "path": "/nowhere"},
            **parts,
        }
    )


@dataclass
class Ledger:
    """A ledger, as far as planning needs one: the files found so far, and the end of the plan."""

    pipeline: Pipeline
    files: list[SourceFile] = field(default_factory=list)
    planned: list[Range] = field(default_factory=list)
    base: int = 0

    @property
    def end(self) -> int:
        """Return the position at which planning continues."""
        return self.planned[-1].end if self.planned else self.base

    def start(self, start_from: str | int) -> None:
        """Begin where the pipeline declares."""
        start = FilesSource(self.pipeline).start("files", start_from)
        self.base, self.files = start.position, list(start.files)

    def plan(self, number: int | None = None, max_records: int = 10**9, source: FilesSource | None = None) -> Plan:
        """Plan what is new and remember it.

        :raises CkptError: the first that the source refused
        """
        request = PlanRequest([RangeToPlan("files", self.end)], number, max_records, self.files)
        plan = (source or FilesSource(self.pipeline)).plan(request)
        self.files += plan.files
        self.planned += [batch.range for batch in plan.batches]
        for error in plan.refused:
            raise error
        return plan

    def tasks(self) -> Sequence[BatchTask]:
        """Every planned batch, located."""
        tasks = [BatchTask(BatchKey(1, "files", seq), span, 1) for seq, span in enumerate(self.planned)]
        return FilesSource(self.pipeline).locate(tasks, self.files)

    def read(self) -> list[list[tuple[int, bytes]]]:
        """Position and bytes of every record, by batch."""
        source = FilesSource(self.pipeline)
        reader = FilesReader(self.pipeline, None, source.shape())
        return [
            [
                (position, value)
                for records in reader.read(task)
                for position, value in zip(
                    records.column(POSITION).to_pylist(), records.column("value").to_pylist(), strict=True
                )
            ]
            for task in self.tasks()
        ]

    def values(self) -> list[bytes]:
        """The bytes of every record."""
        return [value for batch in self.read() for _, value in batch]


def put(path: Path, data: bytes, at: int = 1_000) -> Path:
    """A file with a known modification time, in seconds."""
    path.write_bytes(data)
    os.utime(path, (at, at))
    return path


def put_rows(path: Path, rows: pa.Table, at: int = 1_000, *, group: int | None = None, **options: Any) -> Path:
    """A Parquet file with a known modification time, in seconds.

    :param group: rows in a row group at most
    """
    pq.write_table(rows, path, row_group_size=group, **options)
    os.utime(path, (at, at))
    return path


def lines(first: int, count: int) -> bytes:
    """JSON lines of ten bytes each, while ``id`` has one digit."""
    return b"".join(b'{"id": %d}\n' % number for number in range(first, first + count))
