"""Second phase of the delta sink: one Delta commit a wave; see ``two_phase/committer.py``."""

from __future__ import annotations

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.column_types import decode_schema
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.delta.version import DeltaVersion
from airflow_provider_ckpt.connectors.local.filesystem import local_path
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter
from airflow_provider_ckpt.connectors.two_phase.contention import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.staging import StagedWave
from airflow_provider_ckpt.core.errors import ConfigError, SinkError


class DeltaCommitter(TableCommitter):
    """Committer of a Delta table, which is created if it does not exist; see :class:`TableCommitter`.

    :param pipeline: ``sink.path`` names the table
    :param connection: its path is the base of a relative ``sink.path``
    :param context: ledger, pipeline and epoch
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        path = local_path(pipeline.sink.path or "", "sink.path", connection)
        super().__init__(pipeline, context, str(path))
        self._layout = DeltaLayout(path, context.ledger, context.pipeline)
        self._grows = pipeline.sink.grows

    def _open(self, wave: StagedWave) -> DeltaVersion:
        table = delta_table.load(self._layout.table)
        if table is not None:
            return self._with_new_columns(wave, DeltaVersion(self._layout, table, grows=self._grows))
        DeltaVersion(self._layout, None).refuse_unless_current(self._context.epoch)
        if wave.schema is None:
            raise ConfigError(
                f"there is no Delta table at {self._layout.table} yet, and no batch has columns to create it from.",
                hint="Create the table, or let a batch with rows go first.",
            )
        epochs = {self._layout.epoch_app: self._context.epoch}
        delta_table.create(self._layout.table, decode_schema(wave.schema), epochs)
        table = delta_table.load(self._layout.table)
        if table is None:
            raise SinkError(f"the Delta table {self._layout.table} was removed while it was being written.")
        return DeltaVersion(self._layout, table, grows=self._grows)

    def _with_new_columns(self, wave: StagedWave, version: DeltaVersion) -> DeltaVersion:
        """Add the columns that the table gets from this wave, in a separate commit; after a lost race, try again.

        A stale epoch can at worst leave empty columns behind.
        """
        if not self._grows or wave.schema is None:
            return version
        contention = CommitRetries(self._pipeline, self._target)
        while True:
            if version.table is None or not version.lacks(wave.schema):
                return version
            version.refuse_unless_current(self._context.epoch)
            contention.refuse_if_over()
            lacks = version.lacks(wave.schema)
            contention.tried(worked=delta_table.add_columns(version.table, self._layout.table, lacks))
            version = DeltaVersion(self._layout, delta_table.load(self._layout.table), grows=True)
