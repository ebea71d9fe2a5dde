"""Reads a pipeline from YAML or plain data. An error names the file, the line, the key and what to write instead.

Keys are text whatever YAML makes of them (``on`` and ``no`` are fine column names); a key given twice is an error.
Values may name environment variables, see ``variables.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path as FilePath
from typing import Any

import yaml
from pydantic import ValidationError

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.problems import Path, Problem, problems
from airflow_provider_ckpt.config.variables import expand
from airflow_provider_ckpt.core.errors import ConfigError


def load(path: str | PathLike[str]) -> Pipeline:
    """The pipeline that a YAML file declares.

    :param path: the file
    :raises ConfigError: if it cannot be read or does not hold; one line a problem, the first stands alone: what
        is missing comes last, since a misspelt key is often why
    """
    name = fspath(path)
    try:
        text = FilePath(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse(text, name)


def parse(text: str, name: str = "<string>") -> Pipeline:
    """The pipeline that a YAML text declares.

    :param text: the document
    :param name: what errors call the text
    :raises ConfigError: as :func:`load`
    """
    root = _compose(text, name)
    data, faults = _Reader().read(root)
    if faults:
        raise ConfigError("\n".join(_line(name, line, problem) for line, problem in faults))
    try:
        return Pipeline.model_validate(data)
    except ValidationError as error:
        found = [(_line_of(root, problem.path), problem) for problem in problems(Pipeline, data, error)]
        found.sort(key=lambda pair: (pair[1].missing, pair[0]))
        raise ConfigError("\n".join(_line(name, line, problem) for line, problem in found)) from None


def build(data: Mapping[str, Any], name: str = "pipeline") -> Pipeline:
    """The pipeline that plain data declares, for a user of Python instead of YAML.

    :param data: the declaration, keys as in YAML
    :param name: what errors call the data
    :raises ConfigError: as :func:`load`, without line numbers
    """
    try:
        return Pipeline.model_validate(data)
    except ValidationError as error:
        found = problems(Pipeline, data, error)
        raise ConfigError("\n".join(_line(name, None, problem) for problem in found)) from None


def _compose(text: str, name: str) -> yaml.Node:
    """The document's node tree, which knows the line of every key."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        said = ": ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{where}: not valid YAML: {said}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{name}:{line}: not valid YAML: character #x{error.character:04x} is not allowed") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: not valid YAML: nested too deeply") from error
    if root is None:
        raise ConfigError(f"{name}: is empty; a pipeline needs name, source and sink")
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{name}:{root.start_mark.line + 1}: must be a mapping of keys: name, source, sink and so on")
    return root


class _Reader:
    """Turns a node tree into plain data and gathers what YAML allows and we do not."""

    def __init__(self) -> None:
        self._scalars = yaml.constructor.SafeConstructor()
        self._open: set[int] = set()
        self._done: dict[int, Any] = {}
        self._faults: list[tuple[int, Problem]] = []

    def read(self, root: yaml.Node) -> tuple[Any, list[tuple[int, Problem]]]:
        """The data, and the faults by line; with faults the data is incomplete."""
        return self._value(root, ()), sorted(self._faults, key=lambda fault: fault[0])

    def _value(self, node: yaml.Node, path: Path) -> Any:
        if id(node) in self._open:
            return self._fault(node, path, "contains itself by an alias")
        if id(node) not in self._done:
            self._open.add(id(node))
            self._done[id(node)] = self._fresh(node, path)
            self._open.remove(id(node))
        return self._done[id(node)]

    def _fresh(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        try:
            value = self._scalars.construct_object(node)
        except yaml.constructor.ConstructorError:
            return self._fault(node, path, f"the tag {node.tag} is not supported")
        except ValueError as error:
            return self._fault(node, path, f"cannot be read as what it looks like ({error}); put text in quotes")
        try:
            return expand(value, os.environ) if isinstance(value, str) else value
        except ValueError as error:
            return self._fault(node, path, str(error))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, path, "a key must be plain text")
                continue
            name = str(key.value)
            if name in data:
                self._fault(key, (*path, name), f"given twice, first in line {lines[name]}")
            lines.setdefault(name, key.start_mark.line + 1)
            data[name] = self._value(value, (*path, name))
        return data

    def _fault(self, node: yaml.Node, path: Path, text: str) -> None:
        self._faults.append((node.start_mark.line + 1, Problem(path, text)))


def _line(name: str, line: int | None, problem: Problem) -> str:
    where = name if line is None else f"{name}:{line}"
    return f"{where}: {problem.key}: {problem.text}" if problem.path else f"{where}: {problem.text}"


def _line_of(root: yaml.Node, path: Path) -> int:
    """The line of the key at a path, or of the innermost part that exists."""
    line: int = root.start_mark.line + 1
    for part in path:
        child = next((pair for pair in _children(root) if pair[0] == part), None)
        if child is None:
            return line
        _, line, root = child
    return line


def _children(node: yaml.Node) -> Iterator[tuple[str | int, int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield index, item.start_mark.line + 1, item
