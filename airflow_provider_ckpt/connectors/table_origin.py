"""Build the dead letter headers that locate a record in a table that is read by a cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.wave_messages import BatchTask


def table_origin(task: BatchTask, position: int) -> dict[str, str]:
    """Return the headers ``source-table``, ``source-partition`` (which equals the table) and ``source-position``.

    :param task: the record's batch
    :param position: the record's position
    """
    return {"source-table": task.key.source, "source-partition": task.key.source, "source-position": str(position)}
