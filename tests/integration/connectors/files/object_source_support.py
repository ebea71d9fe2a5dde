"""Support for the tests of the files source in object stores: a new prefix, and a source on it."""

from __future__ import annotations

import io
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ckpt.connectors.files.parquet_reader import ParquetReader
from airflow_provider_ckpt.connectors.files.parquet_source import ParquetSource
from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest, RangeToPlan, SourceFile
from airflow_provider_ckpt.connectors.source_protocol import POSITION, Reader, RecordShape
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.wave_messages import BatchTask
from tests.integration.connectors.files.files_support import parquet_pipeline, pipeline
from tests.services.object_store import ObjectStoreServer


class Inbox:
    """A prefix of an object store, and the pipeline that reads it.

    :param store: the store
    :param pattern: what the source names below the prefix; empty for the prefix itself
    :param port: port of a proxy that leads to the store
    :param parts: further keys of the section ``source``; ``decode`` is the format
    """

    def __init__(
        self,
        store: ObjectStoreServer,
        pattern: str = "",
        *,
        port: int | None = None,
        decode: str = "json",
        **parts: Any,
    ) -> None:
        self.store = store
        self.prefix = f"inbox/{uuid4().hex}"
        self.connection = store.connection(port)
        self.files: list[SourceFile] = []
        self._pattern, self._parquet, self._parts = pattern, decode == "parquet", {"decode": decode, **parts}

    @property
    def source(self) -> FilesSource:
        """A new source."""
        url = self.store.url(f"{self.prefix}/{self._pattern}".rstrip("/"))
        if self._parquet:
            return ParquetSource(parquet_pipeline(url), self.connection)
        return FilesSource(pipeline(url, **self._parts), self.connection)

    def reader(self, shape: RecordShape | None = None) -> Reader:
        """A new reader."""
        shape = shape or self.source.shape()
        url = self.store.url(self.prefix)
        if self._parquet:
            return ParquetReader(parquet_pipeline(url), self.connection, shape)
        return FilesReader(pipeline(url, **self._parts), self.connection, shape)

    def put(self, objects: dict[str, bytes]) -> None:
        """Store objects below the prefix."""
        self.store.put({f"{self.prefix}/{name}": data for name, data in objects.items()})

    def url(self, name: str) -> str:
        """Return the URL of an object."""
        return self.store.url(f"{self.prefix}/{name}")

    def plan(self, source: FilesSource | None = None, *, committed: int = 0) -> Plan:
        """Plan everything that is new, and record the files that were found.

        :param committed: end of the positions that were delivered
        """
        end = self.files[-1].base + self.files[-1].size if self.files else 0
        request = PlanRequest([RangeToPlan("files", end)], None, 10**9, self.files, committed={"files": committed})
        plan = (source or self.source).plan(request)
        self.files += plan.files
        return plan

    def names(self) -> list[str]:
        """Return the names of the recorded objects, in order."""
        return [file.path.removeprefix(self.url("")) for file in self.files]

    def tasks(self, plan: Plan) -> list[BatchTask]:
        """Return the located batches of a plan."""
        tasks = [BatchTask(BatchKey(1, "files", seq), batch.range, 1) for seq, batch in enumerate(plan.batches)]
        return list(self.source.locate(tasks, self.files))

    def read(self, tasks: list[BatchTask]) -> list[tuple[int, bytes]]:
        """Return position and bytes of every record of some batches."""
        reader = self.reader()
        return [
            pair
            for task in tasks
            for batch in reader.read(task)
            for pair in zip(batch.column(POSITION).to_pylist(), batch.column(1).to_pylist(), strict=True)
        ]


def parquet(rows: pa.Table, group: int | None = None) -> bytes:
    """Return a Parquet file.

    :param rows: its rows
    :param group: rows in a row group at most
    """
    file = io.BytesIO()
    pq.write_table(rows, file, row_group_size=group)
    return file.getvalue()
