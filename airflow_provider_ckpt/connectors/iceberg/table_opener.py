"""Open the newest version of an Iceberg table for a commit, which also adds the columns that the table lacks."""

from __future__ import annotations

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.table import TableAddress
from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter


class IcebergTableOpener:
    """Opener of the Iceberg table to which a wave is committed; see :class:`.TableOpener`.

    :param pipeline: ``sink.table`` names the table, which the fence has created
    :param connection: the Airflow connection of the catalog
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._address = TableAddress(pipeline, connection, context)

    @property
    def target(self) -> str:
        """Name of the table for messages, as ``the Iceberg table db.t``."""
        return f"the Iceberg table {self._address.name}"

    def open(self, schema: str | None) -> IcebergVersion:
        """Return the table as it is now, with the columns that the commit will add; see :meth:`TableOpener.open`.

        :param schema: columns of the staged rows as JSON of the Iceberg library; None if no batch has any
        """
        from pyiceberg.schema import Schema

        table = self._address.load_fenced()
        return IcebergVersion(self._address, table, Schema.model_validate_json(schema) if schema is not None else None)

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._address.close()


def open_committer(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> TableCommitter:
    """Return a new committer of waves to an Iceberg table.

    :param pipeline: ``sink.table`` names the table
    :param connection: the Airflow connection of the catalog
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """
    return TableCommitter(pipeline, context, IcebergTableOpener(pipeline, connection, context))
