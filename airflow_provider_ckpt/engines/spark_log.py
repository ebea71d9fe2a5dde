"""Forward Spark's output to the task's log, each line at the level that Spark gave it."""

from __future__ import annotations

import logging
import re
from typing import Any

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.ERROR,
}
_TIME = r"[\[(]?\d[\d/:.,+TZ-]{0,40}[\])]?"
_LINE = re.compile(rf"(?:{_TIME}\s{{1,4}}){{0,2}}\[?(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\]?[\s:]")
_CONTINUED = re.compile(r"at \S|\.\.\. \d+ more|Caused by: |[\w.$]{1,200}(?:Exception|Error)\b")


class SparkLog:
    """Logger for the output of ``spark-submit``: each line is logged at the level that the line names.

    A line of a stack trace gets the level of the line before it.

    :param log: logger to write to
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._level = logging.INFO

    def info(self, line: str, *arguments: Any) -> None:
        """Log a line of Spark's output at its own level, or a message with arguments at level INFO.

        :param line: the line, or the format of the message
        :param arguments: arguments of the message; empty for a line of Spark's output
        """
        if not arguments:
            self._level = level_of(line, self._level)
        self._log.log(logging.INFO if arguments else self._level, line, *arguments)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped logger, such as its method ``warning``."""
        return getattr(self._log, name)


def level_of(line: str, before: int = logging.INFO) -> int:
    """Return the logging level of a line of Spark's output; INFO if the line names none.

    :param line: the line, without surrounding spaces
    :param before: level of the previous line; a line that continues a stack trace gets the same level
    """
    found = _LINE.match(line)
    if found:
        return _LEVELS[found[1]]
    return before if _CONTINUED.match(line) else logging.INFO
