"""Reading side of the jdbc source: yield the records of a batch that Spark (``spark/jdbc.py``) has read.

A lane cannot read this source itself; all records of a batch are passed to it with the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.connectors.table_origin import table_origin
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.batch_key import BatchKey
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class JdbcReader:
    """Reading side of the jdbc source in one lane, to which the lane passes the records of each batch.

    It implements :class:`~airflow_provider_ckpt.connectors.source_protocol.SparkFedReader`.

    :param pipeline: the pipeline, whose ``source.table`` names the table in messages
    :param connection: not used; Spark connects to the database
    :param shape: not used
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:  # noqa: ARG002  # Spark uses them
        self._table = pipeline.source.place
        self._accepted: tuple[BatchKey, Iterable[pa.RecordBatch]] | None = None

    def accept(self, task: BatchTask, records: Iterable[pa.RecordBatch]) -> None:
        """Keep the records of a batch, which the next call of :meth:`read` yields; see :meth:`SparkFedReader.accept`.

        :param task: the batch
        :param records: its records, in the form in which :meth:`Reader.read` yields them
        """
        self._accepted = task.key, records

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of a batch, which :meth:`accept` must have received just before; see :meth:`Reader.read`.

        :param task: the batch
        :raises SourceError: if no records were accepted, or they belong to another batch
        """
        if self._accepted is None or self._accepted[0] != task.key:
            raise SourceError(f"Spark did not pass the rows of {self._table} with the batch.", batch=str(task.key))
        yield from self._accepted[1]

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the headers of a dead letter that locate its record; see :func:`.table_origin`."""
        return table_origin(task, position)

    def close(self) -> None:
        """Drop the reference to the accepted records; there is no connection to close."""
        self._accepted = None
