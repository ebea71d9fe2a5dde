"""Forward Spark's output to the task's log, at the levels that Spark gave."""

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
    """Logger that logs each line of ``spark-submit``'s output at the level that the line itself has.

    Lines of a stack trace get the level of the line before.

    :param log: logger to write to
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._level = logging.INFO

    def info(self, line: str, *arguments: Any) -> None:
        """Log a line of Spark's output, at the level that the line has, or a message with arguments at level INFO."""
        if not arguments:
            self._level = level_of(line, self._level)
        self._log.log(logging.INFO if arguments else self._level, line, *arguments)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the logger."""
        return getattr(self._log, name)


def level_of(line: str, before: int = logging.INFO) -> int:
    """Return the logging level of a line of Spark's output.

    :param line: the line, without surrounding spaces
    :param before: level of the line before it, for a line that continues a stack trace
    """
    found = _LINE.match(line)
    if found:
        return _LEVELS[found[1]]
    return before if _CONTINUED.match(line) else logging.INFO
