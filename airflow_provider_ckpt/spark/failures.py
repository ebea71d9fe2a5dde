"""Convert exceptions in a lane to :class:`ErrorInfo`, with a traceback if dead letters include stack traces."""

from __future__ import annotations

import traceback
from dataclasses import replace

from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType


def to_error_info(error: Exception, *, traced: bool, otherwise: ErrorType = ErrorType.GENERIC) -> ErrorInfo:
    """Convert an exception to :class:`ErrorInfo`, the form in which errors are reported and stored.

    A :class:`CkptError` keeps its error type and message. The message of any other exception begins with its class
    name.

    :param error: the exception
    :param traced: whether to add the traceback. It has frames and exception types, but not the messages of the causing
        exceptions, since they may contain a secret
    :param otherwise: error type for an exception that is no :class:`CkptError`; the default, ``Generic``, halts the
        pipeline
    """
    info = error.info if isinstance(error, CkptError) else ErrorInfo(otherwise, f"{type(error).__name__}: {error}")
    return replace(info, trace=_format_traceback(error, info)) if traced else info


def _format_traceback(error: BaseException, info: ErrorInfo) -> str:
    """Return the traceback of an exception and of its causes, as text without the causes' messages.

    :param error: the exception
    :param info: the exception as :class:`ErrorInfo`, whose message ends the text
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.insert(0, cause)
        cause = cause.__cause__
    lines = ["Traceback (most recent call last):\n"]
    for item in chain:
        lines += traceback.format_tb(item.__traceback__)
        lines.append(f"{type(item).__name__}\n" if item is not error else f"{type(item).__name__}: {info.message}")
    return "".join(lines)
