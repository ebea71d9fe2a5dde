"""Writing side of the delta sink: stage each batch as one data file in the table's directory.

The steps that do not depend on the table format are in ``two_phase/writer.py``. A VACUUM of the table removes files
that were never committed. A lane opens the table once, at its first batch, and ends with the wave. Until then only a
newer run that raises the fence can change the receipts and the epoch that the lane has read, and the commit of the wave
detects that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.column_types import (
    encode_schema,
    length_errors,
    misfits,
    to_delta,
    widen_rows,
)
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.delta.stats import statistics
from airflow_provider_ckpt.connectors.delta.table_version import DeltaVersion
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.connectors.two_phase.column_types import misfit_error, rows_may_lack_columns
from airflow_provider_ckpt.connectors.two_phase.layout import new_file_prefix
from airflow_provider_ckpt.connectors.two_phase.parquet_file import write_parquet
from airflow_provider_ckpt.connectors.two_phase.writer import TableWriter, WrittenFiles, null_errors
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa


class DeltaWriter(TableWriter[DeltaVersion]):
    """Writer that stages each batch as one Parquet file in the directory of a Delta table.

    :param pipeline: ``sink.path`` names the table
    :param connection: the Airflow connection of the object store; for a relative ``sink.path``, a connection of type
        ``fs`` with the directory from which it starts; None if the declaration names no connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :raises ConfigError: if the path cannot be used, or the connection does not fit it
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        super().__init__(pipeline, context)
        path = open_location(pipeline.sink.place, "sink.path", connection)
        self._layout = DeltaLayout(path, context.ledger, context.pipeline)
        self._version: DeltaVersion | None = None

    def _open_version(self) -> DeltaVersion:
        if self._version is None:
            self._version = DeltaVersion(self._layout, delta_table.load(self._layout.table))
        return self._version

    def _convert_rows(self, rows: pa.Table, version: DeltaVersion) -> pa.Table:
        rows = to_delta(rows)
        if version.table is not None and rows.num_rows:
            if self._pipeline.schema_ is not None:
                rows = widen_rows(rows, version.table)
            columns = rows.schema.remove(rows.schema.get_field_index(ROW_NUMBER))
            problems = misfits(
                version.table,
                columns,
                may_lack=rows_may_lack_columns(self._pipeline),
                may_add=self._pipeline.sink.adds_columns,
            )
            if problems:
                raise misfit_error(f"the Delta table {self._layout.table}", problems)
        return rows

    def _record_errors(self, rows: pa.Table, version: DeltaVersion) -> dict[int, ErrorInfo]:
        if version.table is None:
            return {}
        return length_errors(rows, version.table) | null_errors(rows, delta_table.required_columns(version.table))

    def _write(self, task: BatchTask, rows: pa.Table, version: DeltaVersion, written: list[Location]) -> WrittenFiles:
        schema = encode_schema(rows.schema)
        if not rows.num_rows:
            return WrittenFiles(schema=schema)
        path = version.layout.table / f"{new_file_prefix(task.key, task.attempt, self._context.epoch)}.parquet"
        written.append(path)
        footer, size = write_parquet(path, rows)
        described = {
            "path": path.name,
            "size": size,
            "modified": int(time.time() * 1000),
            "stats": statistics(footer, rows.schema),
        }
        return WrittenFiles(path.name, [described], schema)
