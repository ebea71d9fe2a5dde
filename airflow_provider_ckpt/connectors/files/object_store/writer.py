"""Writing side of a files sink in an object store: stage each batch as one hidden object.

A lane reads the head object (the fence's epoch and the newest receipt node) once, at its first batch, and ends with the
wave. Until then only a newer run that raises the fence can change the receipts and the epoch, and the commit of the
wave detects that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.formats import write_rows
from airflow_provider_ckpt.connectors.files.object_store.layout import ObjectLayout
from airflow_provider_ckpt.connectors.files.object_store.version import ObjectFilesVersion
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.two_phase.writer import TableWriter, WrittenFiles
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa


class ObjectFilesWriter(TableWriter[ObjectFilesVersion]):
    """Writing side of a files sink in an object store, in one lane: it stages each batch as one hidden object.

    See :class:`~.sink_protocol.Writer`.

    :param pipeline: ``sink.path`` is the URL of a prefix, ``sink.format`` the format of its objects
    :param connection: the object store's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        super().__init__(pipeline, context)
        self._layout = ObjectLayout.of(pipeline, connection, context)
        self._version: ObjectFilesVersion | None = None

    def _open_version(self) -> ObjectFilesVersion:
        if self._version is None:
            self._version = ObjectFilesVersion(self._layout)
        return self._version

    def _convert_rows(self, rows: pa.Table, version: ObjectFilesVersion) -> pa.Table:  # noqa: ARG002
        return rows

    def _record_errors(self, rows: pa.Table, version: ObjectFilesVersion) -> dict[int, ErrorInfo]:  # noqa: ARG002
        return {}

    def _write(
        self,
        task: BatchTask,
        rows: pa.Table,
        version: ObjectFilesVersion,
        written: list[Location],
    ) -> WrittenFiles:
        if not rows.num_rows:
            return WrittenFiles()
        layout = version.layout
        name = layout.new_file(task.key, self._context.epoch)
        staged = layout.staged_file(task.key, name)
        written.append(staged)
        with staged.create() as file:
            write_rows(rows, layout.format, file)
        return WrittenFiles(name, [{"path": str(staged)}])
