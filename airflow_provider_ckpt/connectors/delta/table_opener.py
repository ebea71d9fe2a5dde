"""Open the newest version of a Delta table for a commit: create the table from the first batch, and add columns."""

from __future__ import annotations

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.column_types import decode_schema
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.delta.table_version import DeltaVersion
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.connectors.two_phase.column_types import rows_may_lack_columns
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter
from airflow_provider_ckpt.core.errors import ConfigError, SinkError


class DeltaTableOpener:
    """Opener of the Delta table to which a wave is committed; see :class:`.TableOpener`.

    :param pipeline: ``sink.path`` names the table
    :param connection: the Airflow connection of the object store; for a relative ``sink.path``, a connection of type
        ``fs`` with the directory from which it starts; None if the declaration names no connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :raises ConfigError: if the path cannot be used, or the connection does not fit it
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        path = open_location(pipeline.sink.place, "sink.path", connection)
        self._pipeline = pipeline
        self._epoch = context.epoch
        self._layout = DeltaLayout(path, context.ledger, context.pipeline)

    @property
    def target(self) -> str:
        """Path of the table, for messages."""
        return str(self._layout.table)

    def open(self, schema: str | None) -> DeltaVersion:
        """Return the newest version of the table, after creating the table or adding columns if they are missing.

        Either is a commit of its own. Columns are added only if :attr:`~.SinkSection.adds_columns` is set.

        :param schema: columns of the staged rows, as :func:`encode_schema` returns them; None if no batch has any
        :raises FencedError: if the fence is at a newer epoch
        :raises ConfigError: if there is no table, and no columns from which to create it
        :raises SinkError: if the table cannot be opened, created or changed, or the fence was never raised
        """
        version = self._version()
        if version.table is not None:
            return self._with_new_columns(version, schema) if self._pipeline.sink.adds_columns and schema else version
        version.refuse_unless_current(self._epoch)
        if schema is None:
            raise ConfigError(
                f"there is no Delta table at {self.target} yet, and no batch has rows from which to create it.",
                hint="Create the table, or deliver a batch with rows first.",
            )
        delta_table.create(self._layout.table, decode_schema(schema), {self._layout.epoch_app: self._epoch})
        version = self._version()
        if version.table is None:
            raise SinkError(
                f"the Delta table {self.target} was removed as soon as it was created; nothing was committed.",
                hint="Find out what removes it, then run again: the batches are sent again.",
            )
        return version

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _version(self) -> DeltaVersion:
        table = delta_table.load(self._layout.table)
        return DeltaVersion(self._layout, table, rows_may_lack=rows_may_lack_columns(self._pipeline))

    def _with_new_columns(self, version: DeltaVersion, schema: str) -> DeltaVersion:
        """Add the columns that the rows have and the table lacks, in a separate commit; return the newest version.

        If another writer commits first, the columns are added to that writer's version. If a newer run raises the fence
        meanwhile, the worst that this run can leave behind is columns without values.

        :param version: the newest version of the table
        :param schema: columns of the staged rows, as :func:`encode_schema` returns them
        :raises FencedError: if the fence is at a newer epoch
        :raises SinkError: if the columns cannot be added, or other writers keep committing first until the run's time
            budget is used up
        """
        contention = CommitRetries(self._pipeline, self.target)
        while version.table is not None and (lacks := version.lacks(schema)):
            version.refuse_unless_current(self._epoch)
            contention.refuse_if_over()
            contention.count_try(succeeded=delta_table.add_columns(version.table, self._layout.table, lacks, {}, {}))
            version = self._version()
        return version


def open_committer(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> TableCommitter:
    """Return a new committer of waves to a Delta table.

    :param pipeline: ``sink.path`` names the table
    :param connection: the Airflow connection of the object store; for a relative ``sink.path``, a connection of type
        ``fs`` with the directory from which it starts; None if the declaration names no connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """
    return TableCommitter(pipeline, context, DeltaTableOpener(pipeline, connection, context))
