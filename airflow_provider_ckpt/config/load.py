"""Reads a pipeline from YAML or plain data. An error names the file, the line, the key and what to write instead.

How a YAML text becomes data is ``document.py``'s business. Everything is bounded: the text, what it holds once its
aliases are written out, and the problems that an error lists.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fsdecode
from typing import Any

from pydantic import ValidationError

from airflow_provider_ckpt.config.characters import shown
from airflow_provider_ckpt.config.document import Document, NotReadableError, unseen_characters
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.problems import Path, Problem, problems
from airflow_provider_ckpt.core.errors import ConfigError

LARGEST = 256 << 10
"""Bytes of a declaration, at most."""

MOST = 20
"""Problems that an error lists."""

_LINE = 500
"""Characters of a problem's line, its file and key included."""

_NAME = 200
"""Characters of a file's name in an error."""


def load(path: str | PathLike[str]) -> Pipeline:
    """The pipeline that a YAML file declares.

    :param path: the file
    :raises ConfigError: if it cannot be read or does not hold; one line a problem, the first stands alone: what
        is missing comes last, since a misspelt key is often why
    """
    return parse(text_of(path), fsdecode(path))


def text_of(path: str | PathLike[str]) -> str:
    """Return the text of a declaration's file, without parsing it as YAML.

    :param path: the file
    :raises ConfigError: if it cannot be read, is no regular file, or is too large for a declaration
    """
    name = fsdecode(path)
    try:
        return _read(name).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{shown(name, _NAME)}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}; save the file as UTF-8"
        raise ConfigError(f"{shown(name, _NAME)}: is not UTF-8 text: {why}") from error


def parse(text: str, name: str = "<string>") -> Pipeline:
    """The pipeline that a YAML text declares.

    :param text: the document
    :param name: what errors call the text
    :raises ConfigError: as :func:`load`
    """
    if len(text) > LARGEST:
        raise ConfigError(_line(name, None, _too_large(len(text))))
    try:
        document = Document(text, os.environ)
    except NotReadableError as error:
        raise ConfigError(_line(name, error.line, error.problem)) from error
    if document.faults:
        raise ConfigError(_lines(name, [(line, fault) for line, fault in document.faults], len(document.faults)))
    return _validated(document.data, name, document.line)


def build(data: Mapping[str, Any], name: str = "pipeline") -> Pipeline:
    """The pipeline that plain data declares, for a user of Python instead of YAML.

    :param data: the declaration, keys as in YAML
    :param name: what errors call the data
    :raises ConfigError: as :func:`load`, without line numbers
    """
    unseen = [(None, fault) for fault in unseen_characters(data)]
    if unseen:
        raise ConfigError(_lines(name, unseen, len(unseen)))
    return _validated(data, name)


def _read(name: str) -> bytes:
    """A file's content; one that is no file, or too large for a declaration, is not read.

    :raises OSError: if it cannot be read
    """
    unseen = next((letter for letter in name if letter == "\0" or "\ud800" <= letter <= "\udbff"), None)
    if unseen is not None:
        raise ConfigError(f"{shown(name, _NAME)}: is no path of a file: it holds U+{ord(unseen):04X}")
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise ConfigError(f"{shown(name, _NAME)}: is {what}; a pipeline is declared in a YAML file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > LARGEST:
        raise ConfigError(_line(name, None, _too_large(found.st_size)))
    return content


def _too_large(size: int) -> Problem:
    return Problem((), f"has {size:,} bytes; a declaration has {LARGEST:,} at most")


def _validated(data: Mapping[str, Any], name: str, line: Callable[[Path], int] | None = None) -> Pipeline:
    """The pipeline that data declares.

    :param line: gives the line of the key at a path
    :raises ConfigError: one line a problem
    """
    try:
        return Pipeline.model_validate(data)
    except ValidationError as error:
        found, count = problems(Pipeline, data, error, order=line, most=MOST)
        raise ConfigError(_lines(name, [(line and line(item.path), item) for item in found], count)) from None


def _lines(name: str, found: Sequence[tuple[int | None, Problem]], count: int) -> str:
    """The first of some problems, one a line, and how many there are more.

    :param count: of all
    """
    lines = [_line(name, line, problem) for line, problem in found[:MOST]]
    if count > len(lines):
        lines.append(f"{shown(name, _NAME)}: and {count - len(lines):,} problems more")
    return "\n".join(lines)


def _line(name: str, line: int | None, problem: Problem) -> str:
    where = shown(name, _NAME) if line is None else f"{shown(name, _NAME)}:{line}"
    text = f"{where}: {problem.key}: {problem.text}" if problem.path else f"{where}: {problem.text}"
    return shown(text, _LINE)
