"""Explain in one line why Spark ended, by the exit status of its process and the last error in its output."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

_ERROR = re.compile(r"(Error|Exception|ERROR|FATAL|\b[Ee]rror)\b")
_NOISE = re.compile(
    r"at .+\(.*\)$"  # frames of a Java stack trace
    r"|\.\.\. \d+ more$"
    r"|File \".*\", line \d+|Traceback "
    r"|[~^\s]*$"
    r"|.{0,40}\b(TRACE|DEBUG|INFO|WARN|WARNING)\b"
    r"|Setting (Spark|default) log level|To adjust logging level|Using Spark's default log4j"
    r"|Picked up \w+_OPTIONS"
)
_LONGEST = 400


def explain(status: int | None, lines: Iterable[str], error: BaseException | None = None) -> str:
    """Return text for an error message that tells why Spark ended by itself, or could not be started.

    For example: ``it was killed by SIGKILL`` or ``spark-submit could not be started: …``.

    :param status: exit status of ``spark-submit``, or minus the number of the signal that killed it; None if it was not
        started
    :param lines: last lines of the process's output, free of secrets
    :param error: exception that prevented the start of the process; None if it was started
    """
    if status is None:
        return f"spark-submit could not be started: {_first_line(error)}"
    lines = list(lines)
    found = last_error(lines)
    if found:
        return f"{_describe_status(status)}; the last error it printed: {found}"
    lines_left = _without_noise(lines)
    if lines_left and _signal(status) is None:
        return f"{_describe_status(status)}; the last line it printed: {lines_left[-1][:_LONGEST]}"
    return _describe_status(status)


def last_error(lines: Iterable[str]) -> str | None:
    """Return the last line of Spark's output that reports an error; None if there is none.

    :param lines: lines of the output
    """
    errors = [line for line in _without_noise(lines) if _ERROR.search(line)]
    return errors[-1][:_LONGEST] if errors else None


def _without_noise(lines: Iterable[str]) -> list[str]:
    """Return the lines of Spark's output without frames of stack traces, empty lines and messages below level ERROR."""
    return [line for line in (line.strip(" :") for line in lines) if not _NOISE.match(line)]


def _describe_status(status: int) -> str:
    """Return text for an error message that tells how a process ended, such as ``it was killed by SIGTERM``.

    If a signal killed a process that ``spark-submit`` had started, the status is 128 plus the signal's number, as in a
    shell.

    :param status: exit status, negative for a signal
    """
    number = _signal(status)
    if number is None:
        return f"exit status {status}"
    cause = ", as the kernel does when memory runs out" if number is signal.SIGKILL else ""
    if status < 0:
        return f"it was killed by {number.name}{cause}"
    return f"exit status {status}, that is {number.name}{cause}"


def _signal(status: int) -> signal.Signals | None:
    number = -status if status < 0 else status - 128
    return signal.Signals(number) if number in set(signal.Signals) else None


def _first_line(error: BaseException | None) -> str:
    return next(iter(str(error or "").splitlines()), type(error).__name__)
