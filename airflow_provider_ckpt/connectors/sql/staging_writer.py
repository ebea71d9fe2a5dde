"""Writing side of the sql sink with ``mode: replace``: write each batch to the staging table of its generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sql.staging import staging_table
from airflow_provider_ckpt.connectors.sql.writer import SqlWriter

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class SqlStagingWriter(SqlWriter):
    """Writer of one lane that writes batches to the staging table of a refresh; see :class:`.SqlWriter`.

    Batches of side partitions, such as replays of dead letters, are written to the target itself.
    """

    def _place(self, task: BatchTask) -> tuple[str | None, str]:
        """Return schema and name of the staging table of a batch's generation; of the target for a side partition.

        The schema is None for the default one.

        :param task: the batch
        """
        schema, table = super()._place(task)
        if task.key.is_side_partition:
            return schema, table
        return schema, staging_table(table, task.key.generation, self._context)
