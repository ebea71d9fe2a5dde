"""Reading side of the jdbc source: yields, batch by batch, the records that Spark (``spark/jdbc.py``) has read.

A lane cannot read the source again, so everything that it may need of a batch comes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.batch_key import BatchKey
    from airflow_provider_ckpt.core.wave import BatchTask


class JdbcReader:
    """Reader of one lane; see :class:`~airflow_provider_ckpt.connectors.source_protocol.SparkFedReader`."""

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:  # noqa: ARG002  # Spark uses them
        self._table = pipeline.source.table
        self._accepted: tuple[BatchKey, Iterable[pa.RecordBatch]] | None = None

    def accept(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Accept the records of a batch."""
        self._accepted = task.key, records

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records that were accepted last, which must belong to this batch."""
        if self._accepted is None or self._accepted[0] != task.key:
            raise SourceError(f"the rows of {self._table} did not come with the batch.", batch=str(task.key))
        yield from self._accepted[1]

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers: table, partition, position."""
        return {
            "source-table": task.key.source,
            "source-partition": task.key.source,
            "source-position": str(position),
        }

    def close(self) -> None:
        """Release the records."""
        self._accepted = None
