"""Load a pipeline's declaration from YAML or plain data; errors name the file, the line, the key and the remedy.

``document.py`` parses the YAML text. The size of the text, of the data after expansion of YAML aliases, and of the
error messages is limited.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fsdecode
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from airflow_provider_ckpt.config.characters import for_message
from airflow_provider_ckpt.config.document import PIPELINE_KEYS, Document, NotReadableError, invisible_characters
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.problems import Problem, to_problems
from airflow_provider_ckpt.config.unknown_keys import KeyPath
from airflow_provider_ckpt.core.errors import ConfigError

_M = TypeVar("_M", bound=BaseModel)

MAX_BYTES = 256 << 10
"""Maximum size of a declaration, in bytes."""

MAX_PROBLEMS = 20
"""Maximum number of problems that an error lists; the rest is only counted."""

_MAX_LINE_LENGTH = 500
"""Maximum number of characters in one line of an error message, including file and key."""

_MAX_NAME_LENGTH = 200
"""Maximum number of characters of a file's name in an error message; longer names are cut."""


def load(path: str | PathLike[str]) -> Pipeline:
    """Load the pipeline that a YAML file declares.

    :param path: the file
    :raises ConfigError: if the file cannot be read or is invalid; the message has one line for each problem. Missing
        keys come last, because a misspelt key is often the cause of a missing one
    """
    return parse(read_text(path), fsdecode(path))


def read_text(path: str | PathLike[str]) -> str:
    """Return the text of a declaration's file, without parsing it as YAML.

    :param path: the file
    :raises ConfigError: if it cannot be read, is not a regular file, or is larger than :data:`MAX_BYTES`
    """
    name = fsdecode(path)
    try:
        return _read(name).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{for_message(name, _MAX_NAME_LENGTH)}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        reason = f"{error.reason} at byte {error.start}; save the file as UTF-8"
        raise ConfigError(f"{for_message(name, _MAX_NAME_LENGTH)}: is not UTF-8 text: {reason}") from error


def parse(text: str, name: str = "<string>") -> Pipeline:
    """Return the pipeline that a YAML text declares.

    :param text: the YAML text
    :param name: name of the text in error messages
    :raises ConfigError: if the text is invalid; the message has one line for each problem
    """
    document = parse_document(text, name)
    return validate(Pipeline, document.data, name, document.line)


def build(data: Mapping[str, Any], name: str = "pipeline") -> Pipeline:
    """Return the pipeline that plain data declares, for declarations in Python instead of YAML.

    :param data: the declaration, with the same keys as in YAML
    :param name: name of the data in error messages
    :raises ConfigError: if the data is invalid; the message has one line for each problem, without line numbers
    """
    refuse_invisible_characters(data, name)
    return validate(Pipeline, data, name)


def parse_document(text: str, name: str, content: str = PIPELINE_KEYS) -> Document:
    """Return the plain data of a YAML text, with the line of every key.

    :param text: the YAML text
    :param name: name of the text in error messages
    :param content: end of the error message about a text without keys; it names the required keys, as in ``a pipeline
        needs name, source and sink``
    :raises ConfigError: if the text is not YAML, is too large, or has a fault such as a duplicate key
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(_problem_line(name, None, _too_large_problem(len(text))))
    try:
        document = Document(text, os.environ, content)
    except NotReadableError as error:
        raise ConfigError(_problem_line(name, error.line, error.problem)) from error
    if document.faults:
        raise ConfigError(error_message(name, [(line, fault) for line, fault in document.faults], len(document.faults)))
    return document


def refuse_invisible_characters(data: Mapping[str, Any], name: str) -> None:
    """Raise an error if plain data that was not parsed from YAML contains a forbidden invisible character.

    Control characters are forbidden, for example. For YAML texts, :func:`parse_document` makes this check.

    :param data: the declaration
    :param name: name of the data in error messages
    :raises ConfigError: if there is such a character; the message has one line for each key or text that contains any
    """
    unseen = [(None, fault) for fault in invisible_characters(data)]
    if unseen:
        raise ConfigError(error_message(name, unseen, len(unseen)))


def _read(name: str) -> bytes:
    """Return the content of a declaration's file.

    :raises ConfigError: if the file is not a regular file, or is larger than :data:`MAX_BYTES`
    :raises OSError: if the file cannot be read
    """
    unseen = next((character for character in name if character == "\0" or "\ud800" <= character <= "\udbff"), None)
    if unseen is not None:
        raise ConfigError(
            f"{for_message(name, _MAX_NAME_LENGTH)}: is not a path of a file: it contains U+{ord(unseen):04X}"
        )
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            raise ConfigError(
                f"{for_message(name, _MAX_NAME_LENGTH)}: is {what}; a pipeline is declared in a YAML file"
            )
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise ConfigError(_problem_line(name, None, _too_large_problem(found.st_size)))
    return content


def _too_large_problem(size: int) -> Problem:
    return Problem((), f"has {size:,} bytes; a declaration has {MAX_BYTES:,} at most")


def validate(model: type[_M], data: Mapping[str, Any], name: str, line: Callable[[KeyPath], int] | None = None) -> _M:
    """Validate data by a Pydantic model, and return the instance of the model.

    :param model: the model, such as that of a pipeline
    :param data: the declaration, with the same keys as in YAML
    :param name: name of the file or data in error messages
    :param line: function that returns the line of a key in the file; None if there is no file
    :raises ConfigError: if the data is invalid; the message has one line for each problem
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found, count = to_problems(model, data, error, order=line, most=MAX_PROBLEMS)
        raise ConfigError(error_message(name, [(line and line(item.path), item) for item in found], count)) from None


def error_message(name: str, found: Sequence[tuple[int | None, Problem]], count: int) -> str:
    """Return an error message with a line for each of the first problems, and the number of further problems.

    :param name: name of the file or data
    :param found: the first problems, each with its line in the file (None if there is no file)
    :param count: number of all problems
    """
    lines = [_problem_line(name, line, problem) for line, problem in found[:MAX_PROBLEMS]]
    if count > len(lines):
        lines.append(f"{for_message(name, _MAX_NAME_LENGTH)}: and {count - len(lines):,} more problems")
    return "\n".join(lines)


def _problem_line(name: str, line: int | None, problem: Problem) -> str:
    where = for_message(name, _MAX_NAME_LENGTH) if line is None else f"{for_message(name, _MAX_NAME_LENGTH)}:{line}"
    text = f"{where}: {problem.key}: {problem.text}" if problem.path else f"{where}: {problem.text}"
    return for_message(text, _MAX_LINE_LENGTH)
