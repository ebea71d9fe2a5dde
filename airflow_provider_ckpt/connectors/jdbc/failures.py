"""Convert errors of JDBC drivers, from this process's Java process or from Spark's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc.url_check import without_secrets
from airflow_provider_ckpt.connectors.sqlstates import is_server_failure, is_transient
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
"""SQLSTATE classes for which a retry cannot help, with any class of exception."""

_NOISE = re.compile(r"^(?:ERROR|FATAL|PANIC): |; SQL statement:$")


@dataclass(frozen=True, slots=True)
class JavaError:
    """The parts of a Java exception that determine its handling.

    :param kinds: its class and all superclasses
    :param state: SQLSTATE
    :param text: message
    """

    kinds: tuple[str, ...]
    state: str | None
    text: str


def java_errors(error: BaseException) -> Iterator[JavaError]:
    """Yield an exception of Py4J or PySpark and its causes, outermost first; nothing if it is not a Java exception."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while thrown is not None:
        kinds = tuple(_class_names(thrown))
        state = thrown.getSQLState() if _SQL in kinds else None
        yield JavaError(kinds, state, str(thrown.getMessage() or kinds[0]))
        cause = thrown.getCause()
        thrown = cause if cause != thrown else None


def sql_error(error: BaseException) -> JavaError | None:
    """Return the driver's own exception among the causes of another, if there is one."""
    return next((found for found in java_errors(error) if _SQL in found.kinds), None)


def missing_class(error: BaseException) -> str | None:
    """Return the name of the class that was not found, if that is the cause of an exception."""
    return next((found.text for found in java_errors(error) if set(_NO_CLASS) & set(found.kinds)), None)


def error_info(found: JavaError, operation: str, connection: Connection) -> ErrorInfo:
    """Convert a driver's exception (semantics, section 7).

    :param found: the exception
    :param operation: the operation, for the message
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
    """Return the first line of the database's message, without prefix and suffix."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), text)
    return _NOISE.sub("", first)


def _class_names(thrown: Any) -> Iterator[str]:
    kind = thrown.getClass()
    while kind is not None:
        yield str(kind.getName())
        kind = kind.getSuperclass()
