"""Convert exceptions of JDBC drivers, which reach Python through Py4J or PySpark, to error information.

The exceptions come from the Java process in which planning queries the database (``jvm.py``), or from Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc.url_check import without_secrets
from airflow_provider_ckpt.connectors.transient_sqlstates import is_server_failure, is_transient
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

_SQL = "java.sql.SQLException"
_NO_CLASS = ("java.lang.ClassNotFoundException", "java.lang.NoClassDefFoundError")
_CONNECTION_LOST = frozenset(
    {
        "java.sql.SQLNonTransientConnectionException",
        "java.sql.SQLRecoverableException",
        "java.sql.SQLTransientConnectionException",
    }
)
"""Exceptions with which a driver reports that the connection is lost or cannot be opened."""

_TRANSIENT = "java.sql.SQLTransientException"
_NOT_TRANSIENT = ("28", "3D", "42")
"""SQLSTATE classes of errors for which a retry cannot help, whatever the class of the exception."""

_NOISE = re.compile(r"^(?:ERROR|FATAL|PANIC): |; SQL statement:$")


@dataclass(frozen=True, slots=True)
class JavaError:
    """The class, SQLSTATE and message of a Java exception.

    :param kinds: names of its class and all superclasses, beginning with the class itself
    :param state: SQLSTATE of a ``java.sql.SQLException``, None or empty if it has none; None for any other exception
    :param text: its message; its class name if it has no message
    """

    kinds: tuple[str, ...]
    state: str | None
    text: str


def java_errors(error: BaseException) -> Iterator[JavaError]:
    """Yield the Java exception that a Py4J or PySpark exception carries, then its causes, outermost first.

    Yield nothing for an exception of any other kind.
    """
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while thrown is not None:
        kinds = tuple(_class_names(thrown))
        state = thrown.getSQLState() if _SQL in kinds else None
        yield JavaError(kinds, state, str(thrown.getMessage() or kinds[0]))
        cause = thrown.getCause()
        thrown = cause if cause != thrown else None


def sql_error(error: BaseException) -> JavaError | None:
    """Return the first ``java.sql.SQLException`` among a Java exception and its causes; None if there is none.

    :param error: an exception of Py4J or PySpark, or any other
    """
    return next((found for found in java_errors(error) if _SQL in found.kinds), None)


def missing_class(error: BaseException) -> str | None:
    """Return the name of the Java class that was not found, if an exception or one of its causes reports it; else None.

    :param error: an exception of Py4J or PySpark, or any other
    """
    return next((found.text for found in java_errors(error) if set(_NO_CLASS) & set(found.kinds)), None)


def error_info(found: JavaError, operation: str, connection: Connection) -> ErrorInfo:
    """Return the error information for a driver's exception (semantics, section 7).

    The exception is classified as an outage, as recoverable, or as permanent, by its SQLSTATE and its class.

    :param found: the exception
    :param operation: description of the failed operation, with which the message begins
    :param connection: connection whose secrets are removed from the message
    """
    state = found.state or None
    refused = state is not None and state.startswith(_NOT_TRANSIENT)
    is_outage = not refused and (
        bool(_CONNECTION_LOST & set(found.kinds)) or (state is not None and is_server_failure(state))
    )
    recoverable = (
        is_outage or (not refused and _TRANSIENT in found.kinds) or (state is not None and is_transient(state))
    )
    return ErrorInfo(
        ErrorType.SOURCE,
        f"{operation}: {without_secrets(connection, _first_line(found.text))}",
        recoverable,
        state,
        is_outage,
    )


def _first_line(text: str) -> str:
    """Return a driver's first non-empty message line, without leading ``ERROR: `` or trailing ``; SQL statement:``."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), text)
    return _NOISE.sub("", first)


def _class_names(thrown: Any) -> Iterator[str]:
    kind = thrown.getClass()
    while kind is not None:
        yield str(kind.getName())
        kind = kind.getSuperclass()
