"""Open the connection of a postgres reader to its database, and keep it open across the batches of a lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    READ_APPLICATION,
    error_info,
    open_adbc,
    require_connection,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.range_query import SESSION_SETTINGS
from airflow_provider_ckpt.connectors.postgres.row_security import row_security_setting
from airflow_provider_ckpt.connectors.table_origin import table_origin
from airflow_provider_ckpt.core.errors import CkptError, ErrorType, SourceError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape
    from airflow_provider_ckpt.core.wave_messages import BatchTask


class ReaderSession:
    """Session of a reader, opened at its first batch and kept until an error or :meth:`close`.

    :param pipeline: ``source.table`` names the table
    :param connection: the Airflow connection of the database
    :param shape: the columns to read
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        source = PostgresSourceSection.of(pipeline)
        self._connection = require_connection(connection, "source")
        self._table_name = source.table
        self._application = f"{READ_APPLICATION}{pipeline.name}"
        self._settings = SESSION_SETTINGS | row_security_setting(source)
        self._shape = shape
        self._client: Any = None
        self._cursor: Any = None

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the headers of a dead letter that locate its record; see :func:`.table_origin`."""
        return table_origin(task, position)

    def close(self) -> None:
        """Close the connection, whether it is alive or lost."""
        if self._client is None:
            return
        self._cursor.close()
        self._client.close()
        self._client = self._cursor = None

    def _open(self) -> None:
        """Open the connection if it is not open."""
        if self._client is None:
            client = open_adbc(self._connection, self._application, ErrorType.SOURCE, self._settings)
            try:
                self._cursor = client.cursor()
            except BaseException:
                client.close()
                raise
            self._client = client

    def _failed(self, task: BatchTask, error: Exception) -> CkptError:
        """Close the connection after an error of the driver, and return the exception to raise.

        :param task: the batch that was read
        :param error: the driver's error
        """
        info = error_info(error, ErrorType.SOURCE, f"reading {self._table_name} {task.range}", lost=self._is_lost())
        self.close()
        return to_exception(info)

    def _is_lost(self) -> bool:
        """Return whether the connection is lost."""
        from adbc_driver_manager import Error

        if self._cursor is None:
            return False
        try:
            self._cursor.execute("SELECT 1")
            self._cursor.fetchall()
        except Error:
            return True
        return False

    def _recreated_error(self, task: BatchTask, hint: str) -> SourceError:
        """Return the error of a batch whose table was dropped or recreated after the batch was planned.

        :param task: the batch
        :param hint: advice to the user, as a sentence
        """
        return SourceError(
            f"table {self._table_name} is not the one that the batch was planned for: it was dropped or recreated.",
            batch=str(task.key),
            hint=hint,
        )
