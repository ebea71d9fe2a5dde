"""Passes what Spark prints on to the task's log at the level that Spark gave it."""

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
    """A logger whose ``info`` takes the level from the line, where ``spark-submit``'s output has one.

    The lines of a stack trace have the level of the line that they follow.

    :param log: the logger to write to
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._level = logging.INFO

    def info(self, line: str, *arguments: Any) -> None:
        """Log a line."""
        if not arguments:
            self._level = level_of(line, self._level)
        self._log.log(logging.INFO if arguments else self._level, line, *arguments)

    def __getattr__(self, name: str) -> Any:
        """All else is the logger's own."""
        return getattr(self._log, name)


def level_of(line: str, before: int = logging.INFO) -> int:
    """The level of a line that Spark printed.

    :param line: without surrounding spaces
    :param before: the level of the line before it
    """
    found = _LINE.match(line)
    if found:
        return _LEVELS[found[1]]
    return before if _CONTINUED.match(line) else logging.INFO
