"""Write the rows of a batch; find the rows that the target refuses by dividing the batch into smaller parts.

Each part is written under a savepoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.dialect import SqlDialect
from airflow_provider_ckpt.connectors.sql.failures import without_values
from airflow_provider_ckpt.connectors.sql.outgoing_values import convert
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError

_FIRST_PART = 512
"""Number of rows in a part of a batch that is written together, after the batch as a whole has failed."""

_PARTS = 8
"""Number of smaller parts into which a part is divided if it fails."""


@dataclass(slots=True)
class Written:
    """Result of writing a batch's rows.

    :param sent: number of rows that the target did not refuse
    :param taken: number of rows that the server reports as taken
    :param refused: errors of the refused rows, by row number
    """

    sent: int = 0
    taken: int = 0
    refused: dict[int, ErrorInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writer of rows to one target.

    :param connection: the connection, with a transaction that claimed the batch
    :param dialect: the database's dialect
    :param target: the target
    :param key: key columns of an upsert; empty to insert
    :param shows_values: whether the errors of refused rows may quote the rows' values; only if dead letters, which
        contain the values anyway, are enabled
    """

    connection: sa.Connection
    dialect: SqlDialect
    target: Table
    key: Sequence[str]
    shows_values: bool

    def write(self, rows: pa.Table) -> Written:
        """Write the rows that the target accepts, and return the errors of the others.

        :param rows: the rows, with the column :data:`~.sink_protocol.ROW_NUMBER`
        :return: numbers of rows that were sent and taken, and the errors of refused rows by row number
        :raises ConfigError: if the target cannot store the rows' columns
        :raises sqlalchemy.exc.DBAPIError: if the database reports an error that no single row causes
        """
        converted, refused = convert(rows, self.target)
        written = Written(refused=refused)
        if converted.num_rows and self._try(converted, written) is not None:
            self._write_parts(converted, _FIRST_PART, written)
        return written

    def _write_parts(self, rows: pa.Table, size: int, written: Written) -> None:
        """Write rows in parts of a given size; divide each part that fails, down to single rows.

        :param rows: the rows
        :param size: number of rows in a part
        :param written: result to which the counts and errors are added
        """
        for start in range(0, rows.num_rows, size):
            part = rows.slice(start, size)
            error = self._try(part, written)
            if error is None:
                continue
            if part.num_rows > 1:
                self._write_parts(part, max(1, part.num_rows // _PARTS), written)
            else:
                written.refused[part.column(ROW_NUMBER)[0].as_py()] = self._row_error(error)

    def _try(self, rows: pa.Table, written: Written) -> DBAPIError | None:
        """Write rows under a savepoint and count them; roll back and return the error if their data caused one.

        :param rows: the rows
        :param written: result to which the counts are added
        :raises sqlalchemy.exc.DBAPIError: if the database reports an error that no row causes
        """
        from sqlalchemy.exc import DBAPIError

        savepoint = self.connection.begin_nested()
        try:
            taken = self.dialect.write(self.connection, self.target, rows.drop_columns([ROW_NUMBER]), self.key)
        except DBAPIError as error:
            if error.connection_invalidated or not self.dialect.classify(error).of_row:
                raise
            savepoint.rollback()
            return error
        savepoint.commit()
        written.sent += rows.num_rows
        written.taken += taken
        return None

    def _row_error(self, error: DBAPIError) -> ErrorInfo:
        failure = self.dialect.classify(error)
        text = failure.text if self.shows_values else without_values(failure.text)
        return ErrorInfo(ErrorType.SINK, text, False, failure.state)
