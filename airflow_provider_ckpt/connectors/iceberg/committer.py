"""Second phase of the iceberg sink: one snapshot a wave; see ``two_phase/committer.py``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.table import TableAddress
from airflow_provider_ckpt.connectors.iceberg.version import IcebergVersion
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter
from airflow_provider_ckpt.connectors.two_phase.staging import StagedWave
from airflow_provider_ckpt.core.wave import Outcome


class IcebergCommitter(TableCommitter):
    """Committer of an Iceberg table; adds columns to a table that has none yet.

    :param pipeline: ``sink.table`` names the table
    :param connection: the catalog
    :param context: ledger, pipeline and epoch
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._address = TableAddress(pipeline, connection, context)
        super().__init__(pipeline, context, f"the Iceberg table {self._address.name}")

    def commit(self, staged: Sequence[Outcome]) -> Sequence[Outcome]:
        """See :meth:`Committer.commit`."""
        with closing(self._address):
            return super().commit(staged)

    def _open(self, wave: StagedWave) -> IcebergVersion:
        from pyiceberg.schema import Schema

        table = self._address.load_fenced()
        schema = Schema.model_validate_json(wave.schema) if wave.schema is not None else None
        return IcebergVersion(self._address, table, schema)
