"""Connect to an SQL database on first use, and convert exceptions to the package's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sql.failures import LOST, error_info, first_line, to_exception
from airflow_provider_ckpt.connectors.sql.installed_dialects import find_dialect, require_connection
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError

WRITES = "ckpt_writes"
"""Name of the execution option of a connection whose next transaction writes; SQLite then locks at its start."""


class Database:
    """One connection to the database of a source or sink.

    :param connection: the Airflow connection
    :param side: ``source`` or ``sink``
    """

    def __init__(self, connection: Connection | None, side: str) -> None:
        self.known = require_connection(connection, side)
        self.dialect = find_dialect(self.known, side)
        self._kind = ErrorType.SOURCE if side == "source" else ErrorType.SINK
        self._open: sa.Connection | None = None

    @property
    def is_open(self) -> bool:
        """True if the connection to the database is open."""
        return self._open is not None

    @property
    def location(self) -> str:
        """Address of the database, without user and password."""
        return self.dialect.address(self.known)

    def connect(self, *, writes: bool = False) -> sa.Connection:
        """Return the connection, after opening it if it is not open.

        :param writes: whether the next transaction writes
        :raises SourceError: or :class:`SinkError`, if it cannot be opened
        :raises ConfigError: if the driver is not installed
        """
        import sqlalchemy as sa

        if self._open is None:
            try:
                engine = sa.create_engine(
                    self.dialect.url(self.known),
                    connect_args=self.dialect.connect_args(self.known),
                    poolclass=sa.NullPool,
                    hide_parameters=True,
                    **({"isolation_level": self.dialect.isolation} if self.dialect.isolation else {}),
                )
                self.dialect.prepare(engine)
                self._open = engine.connect()
            except (ImportError, sa.exc.NoSuchModuleError) as error:
                raise ConfigError(
                    f"the driver of connection {self.known.id!r} cannot be imported ({error}).",
                    hint=f"Install {self.dialect.install}, on Spark's executors, too.",
                ) from error
            except sa.exc.DBAPIError as error:
                raise to_exception(self._connect_error(error), self.dialect.classify(error).hint) from error
        return self._open.execution_options(**{WRITES: writes})

    @contextmanager
    def session(self, operation: str, *, writes: bool = False) -> Iterator[sa.Connection]:
        """Yield the connection for one transaction, which is committed at the end, or rolled back after an error.

        :param operation: the operation, for messages
        :param writes: whether the transaction writes
        :raises SourceError: or :class:`SinkError`, instead of the driver's exceptions
        """
        from sqlalchemy.exc import DBAPIError

        connection = self.connect(writes=writes)
        try:
            yield connection
            connection.commit()
        except DBAPIError as error:
            raise to_exception(self.failed(error, operation), self.dialect.classify(error).hint) from error
        except BaseException:
            self.roll_back()
            raise

    def failed(self, error: DBAPIError, operation: str) -> ErrorInfo:
        """Roll back after an exception, and return the error information; close a connection that is lost.

        :param error: the exception
        :param operation: the failed operation, for the message
        """
        lost = bool(error.connection_invalidated) or not self.roll_back()
        if lost:
            self.close()
        return error_info(self.dialect.classify(error), self._kind, operation, lost=lost)

    def roll_back(self) -> bool:
        """Roll back the open transaction, if there is one; return False and close the connection if it is lost."""
        from sqlalchemy.exc import SQLAlchemyError

        if self._open is None:
            return True
        try:
            self._open.rollback()
        except SQLAlchemyError:
            self.close()
            return False
        return not self._open.invalidated

    def close(self) -> None:
        """Close the connection, whether it is alive or lost; an open transaction is rolled back."""
        from sqlalchemy.exc import SQLAlchemyError

        opened, self._open = self._open, None
        if opened is not None:
            with suppress(SQLAlchemyError):
                opened.close()

    def _connect_error(self, error: DBAPIError) -> ErrorInfo:
        failure = self.dialect.classify(error)
        message = (
            f"cannot connect to {self.dialect.label} at {self.location} (connection {self.known.id!r}): "
            f"{first_line(error)}"
        )
        if failure.state is not None and failure.state[:2] in ("28", "3D", "42"):
            return ErrorInfo(self._kind, message, False, failure.state)
        return ErrorInfo(self._kind, message, True, failure.state or LOST, is_outage=True)
