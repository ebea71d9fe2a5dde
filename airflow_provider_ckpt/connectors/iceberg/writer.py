"""Writing side of the iceberg sink: stage each batch as one data file for each table partition that its rows are in.

The steps that do not depend on the table format are in ``two_phase/writer.py``. A staged file that no commit names is
left to the table's own maintenance (``remove_orphan_files``), since other tables, catalogs or older metadata may refer
to it. A lane opens the table once, at its first batch, and ends with the wave. Until then only a newer run that raises
the fence can change the receipts and the epoch that the lane has read, and the commit of the wave detects that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import record_error
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg import data_file
from airflow_provider_ckpt.connectors.iceberg.column_types import (
    fill_missing_columns,
    refuse_misfit,
    to_iceberg,
    with_new_columns,
    without_row_number,
)
from airflow_provider_ckpt.connectors.iceberg.table import TableAddress
from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.two_phase.layout import new_file_prefix
from airflow_provider_ckpt.connectors.two_phase.writer import TableWriter, WrittenFiles, null_errors
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa

_TIME_OVERFLOW = "22008"


class IcebergWriter(TableWriter[IcebergVersion]):
    """Writer that stages each batch as Parquet files of an Iceberg table, one for each table partition of its rows.

    :param pipeline: ``sink.table`` names the table
    :param connection: the Airflow connection of the catalog
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :raises ConfigError: if there is no connection, or the connection names no catalog
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        super().__init__(pipeline, context)
        self._address = TableAddress(pipeline, connection, context)
        self._version: IcebergVersion | None = None

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._address.close()

    def _open_version(self) -> IcebergVersion:
        if self._version is None:
            self._version = IcebergVersion(self._address, self._address.load_fenced())
        return self._version

    def _convert_rows(self, rows: pa.Table, version: IcebergVersion) -> pa.Table:
        rows = to_iceberg(rows)
        if rows.num_rows and version.schema.fields:
            columns = without_row_number(rows.schema)
            refuse_misfit(
                self._address.name,
                version.schema,
                columns,
                adds_columns=self._address.adds_columns,
                follows_schema=self._address.follows_schema,
            )
        return rows

    def _record_errors(self, rows: pa.Table, version: IcebergVersion) -> dict[int, ErrorInfo]:
        errors = null_errors(rows, [field.name for field in version.schema.fields if field.required])
        for name, number in data_file.find_unpartitionable(rows, version.table.spec(), version.schema):
            message = f"column {name} has a time that is out of range for the table's partitioning"
            errors[number] = record_error(ErrorType.SINK, message, _TIME_OVERFLOW)
        return errors

    def _write(self, task: BatchTask, rows: pa.Table, version: IcebergVersion, written: list[Location]) -> WrittenFiles:
        table = version.table
        schema = with_new_columns(table, rows.schema, adds_columns=self._address.adds_columns)
        text = schema.model_dump_json()
        if not rows.num_rows:
            return WrittenFiles(schema=text)
        rows = fill_missing_columns(rows, schema)
        stem, spec = new_file_prefix(task.key, task.attempt, self._context.epoch), table.spec()
        files = []
        for number, (values, part) in enumerate(data_file.split_by_partition(rows, spec, schema)):
            location = table.location_provider().new_data_location(f"{stem}-{number}.parquet")
            path = version.layout.table.resolve(location)
            written.append(path)
            described = data_file.write_file(path, part, schema, table.properties)
            texts = data_file.encode_partition(values, spec, schema)
            files.append(
                {"path": str(path), "location": location, "spec": spec.spec_id, "partition": texts, **described}
            )
        return WrittenFiles(stem, files, text)
