"""Writing side of the postgres sink with ``mode: replace``: write each batch to the staging table of its generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.postgres.staging import staging_place
from airflow_provider_ckpt.connectors.postgres.writer import PostgresWriter

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class PostgresStagingWriter(PostgresWriter):
    """Writer of one lane that writes batches to the staging table of a refresh; see :class:`.PostgresWriter`.

    Replays of dead letters are written to the target itself.
    """

    def _target_name(self, task: BatchTask) -> str:
        """Return the name of the staging table of a batch's generation, or the target for a replay of dead letters.

        :param task: the batch
        """
        if task.key.is_side_partition:
            return super()._target_name(task)
        return staging_place(self._name, task.key.generation)
