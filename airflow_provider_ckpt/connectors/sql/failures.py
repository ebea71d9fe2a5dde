"""Convert exceptions of SQLAlchemy and of drivers to error information, without SQL, values or secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.transient_sqlstates import is_server_failure, is_transient
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType, SinkError, SourceError

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

LOST = "08006"
"""SQLSTATE of a lost connection, for drivers that report none."""

_VALUE_BEFORE_NAME = re.compile(r"(?<!\w)(['\"]).*\1(?= for (?:key|column|function) )", re.IGNORECASE | re.DOTALL)
"""Pattern of a quoted value that words follow which introduce a name; the value may itself contain quotes."""

_QUOTED = re.compile(
    r"(for (?:key|column|function) )?(?<!\w)(?:'.*?'(?!\w)|\".*?\"(?!\w))|(?<!\w)['\"].*", re.IGNORECASE | re.DOTALL
)
"""Pattern of a quoted part of a server's message: a value, unless it follows words that introduce a name.

The closing quote is missing if the value has several lines, of which the message has the first. An apostrophe, as in
``can't``, is no quote.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """Meaning of a driver's exception, as the dialect of the database understands it.

    :param state: SQLSTATE, which decides whether a retry can help; None if it is not known
    :param text: the server's message, which may quote values
    :param of_row: whether the data of a row may have caused the error, so that other rows can be written
    :param is_duplicate: whether a row has the key of another
    :param hint: advice to the user, if any
    """

    state: str | None
    text: str
    of_row: bool = False
    is_duplicate: bool = False
    hint: str | None = None


def error_info(failure: Failure, kind: ErrorType, operation: str, *, lost: bool) -> ErrorInfo:
    """Return the error information for a failed operation: message, SQLSTATE, and whether a retry can help.

    :param failure: the exception, as the dialect understands it
    :param kind: ``Source`` or ``Sink``
    :param operation: the operation, with which the message begins
    :param lost: whether the connection was lost, so that the result of its last statement is unknown
    """
    text = f"{operation}: {without_values(failure.text)}"
    state = failure.state
    if lost:
        return ErrorInfo(kind, f"{text} (the connection was lost)", True, state or LOST, is_outage=True)
    if state is None:
        return ErrorInfo(kind, text)
    return ErrorInfo(kind, text, is_transient(state), state, is_server_failure(state))


def without_values(message: str) -> str:
    """Return a server's message without the values that it quotes, since logs and events must not show records."""
    message = _VALUE_BEFORE_NAME.sub("'…'", message)
    return _QUOTED.sub(lambda found: found[0] if found[1] else "'…'", message)


def to_exception(info: ErrorInfo, hint: str | None = None) -> CkptError:
    """Return the exception that carries error information: ``SourceError`` or ``SinkError``.

    :param info: the error information
    :param hint: advice to the user, if any
    """
    kind = SourceError if info.type is ErrorType.SOURCE else SinkError
    return kind(info.message, sqlstate=info.sqlstate, recoverable=info.recoverable, is_outage=info.is_outage, hint=hint)


def first_line(error: DBAPIError) -> str:
    """Return the first line of the driver's own message; SQLAlchemy's message would contain the statement."""
    text = str(error.orig).strip()
    return next(iter(text.splitlines()), type(error.orig).__name__).strip()
