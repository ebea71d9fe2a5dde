"""An exception that a lane met, as data; with its traceback where the pipeline wants that in dead letters."""

from __future__ import annotations

import traceback
from dataclasses import replace

from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType


def info_of(error: Exception, *, traced: bool, otherwise: ErrorType = ErrorType.GENERIC) -> ErrorInfo:
    """An error that a lane met, as data; one that nothing foresaw halts, with its type in the message.

    :param otherwise: the type of what is none of ours
    :param traced: with the traceback: its frames, but no message of another error, for that may hold a secret
    """
    info = error.info if isinstance(error, CkptError) else ErrorInfo(otherwise, f"{type(error).__name__}: {error}")
    return replace(info, trace=_frames(error, info)) if traced else info


def _frames(error: BaseException, info: ErrorInfo) -> str:
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
