"""Base of the sql sources with ``mode: incremental`` and ``mode: full``: connection, and description of the table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.source_plan import SourcePartition
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.connectors.sql.connector import SqlSourceSection
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.source_table import WholeTable
from airflow_provider_ckpt.core.errors import CkptError

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.config.pipeline import Pipeline

T = TypeVar("T", bound=WholeTable)


class SqlSourceSession(ABC, Generic[T]):
    """Session with the database of a source, opened at the first query and kept until an error or :meth:`close`.

    :param pipeline: ``source.table`` names the table
    :param connection: the Airflow connection of the database
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        self._section = SqlSourceSection.of(pipeline)
        self._pipeline = pipeline.name
        self._database = Database(connection, "source")

    def reads(self, output: Output) -> bool:
        """Return whether the sink's output is the table that the source reads; see :class:`ReadsOutputs`."""
        if not isinstance(output, WrittenTarget) or output.system != self._database.dialect.name:
            return False
        return output.identity == self.partitions()[0].identity

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the table as the only partition."""
        with self._database.session(f"reading the identity of {self._section.table}") as connection:
            table = self._table(connection)
            identity = f"{self._database.dialect.server_identity(connection)}/{table.label}"
        return [SourcePartition(table.label, identity)]

    def shape(self) -> RecordShape:
        """Return the columns to read (those that the pipeline names, or else all columns) and their Spark types."""
        with self._database.session(f"reading the columns of {self._section.table}") as connection:
            return RecordShape(False, [(column.name, column.spark) for column in self._table(connection).columns])

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _table(self, connection: sa.Connection) -> T:
        """Return the table as it is now.

        :raises ConfigError: if it does not exist, or lacks a column or has one that cannot be read; names the pipeline
        """
        try:
            return self._look_up(connection)
        except CkptError as error:
            error.pipeline = self._pipeline
            raise

    @abstractmethod
    def _look_up(self, connection: sa.Connection) -> T:
        """Return the table as it is now; errors do not name the pipeline: the caller, :meth:`_table`, adds the name."""
