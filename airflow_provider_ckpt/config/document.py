"""Read a YAML text as plain data, with the line of every key.

Keys are always text (``on`` and ``no`` are valid column names). YAML features that are usually mistakes are reported as
faults: duplicate keys, merge keys, ``1:30`` read as 90, tags, and invisible characters. Values may refer to environment
variables, see ``variables.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.resolver import Resolver

from airflow_provider_ckpt.config.characters import forbidden_character
from airflow_provider_ckpt.config.problems import Problem
from airflow_provider_ckpt.config.unknown_keys import KeyPath
from airflow_provider_ckpt.config.variables import expand

MAX_DEPTH = 20
"""Maximum number of nested levels of keys and lists in a declaration."""

MAX_NODES = 10_000
"""Maximum number of keys and values in a declaration after aliases are expanded."""

PIPELINE_KEYS = "a pipeline needs name, source and sink"
"""End of the error message about a YAML text without keys, for the declaration of a pipeline."""

_TAG = "tag:yaml.org,2002:"
_MAX_NUMBER_LENGTH = 100
_AMBIGUOUS_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*+(?::[0-9_.]++)++|[-+]?0[0-7_]*[0-7][0-7_]*")
"""Pattern of numbers that YAML 1.1 reads in base 60 or base 8, such as ``1:30`` and ``010``.

They are reported as faults.
"""

_DELIMITER = ("transform", "delimiter")
"""Path of the only key whose value may be a control character: the delimiter of CSV."""

_UNSEEN = "holds {}, which cannot be seen; leave it out"

_NULL_WORD_ALLOWED = ("error_handling", "missing_field_behavior")


class NotReadableError(Exception):
    """Error of a text that is not valid YAML, or exceeds a limit, so that no data can be read from it.

    :ivar line: the line of the error, from 1; None if it is not known
    :ivar problem: description of the error; its path is empty, since no key of the document is known
    """

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.problem = Problem((), text)


class Document:
    """A declaration, such as a pipeline's, parsed from YAML text to plain data.

    :param text: the YAML text
    :param environment: environment variables that values may refer to
    :param content: end of the error message about a text without keys, such as :data:`PIPELINE_KEYS`
    :ivar data: the plain data; a value with a fault may be missing, None, or the text as written
    :ivar faults: pairs of a line and the problem in that line, in order
    :raises NotReadableError: if the text is not a single YAML document with a mapping of keys, or is too large
    """

    def __init__(self, text: str, environment: Mapping[str, str], content: str = PIPELINE_KEYS) -> None:
        self._root: yaml.Node = _compose(text, content)
        self._children: dict[int, dict[str | int, tuple[int, yaml.Node]]] = {}
        reader = _NodeConverter(environment)
        self.data: Any = reader.value(self._root, ())
        self.faults: list[tuple[int, Problem]] = sorted(reader.faults, key=lambda fault: fault[0])

    def line(self, path: KeyPath) -> int:
        """Return the line, from 1, of the key at a path; if it is missing, the line of its nearest existing parent."""
        node, line = self._root, int(self._root.start_mark.line) + 1
        for part in path:
            if id(node) not in self._children:
                self._children[id(node)] = {key: (at, inside) for key, at, inside in _children(node)}
            if part not in self._children[id(node)]:
                return line
            line, node = self._children[id(node)][part]
        return line


def invisible_characters(data: object, path: KeyPath = ()) -> Iterator[Problem]:
    """Yield a problem for each key and text of plain data that contains a forbidden invisible character.

    Forbidden are control characters other than tab and line breaks, and others that :func:`.forbidden_character` names.

    :param data: the declaration, or the part of it at ``path``
    :param path: key path of the part; parts deeper than :data:`MAX_DEPTH` are not searched
    """
    if isinstance(data, str) and path != _DELIMITER:
        found = forbidden_character(data)
        if found:
            yield Problem(path, _UNSEEN.format(found))
    if len(path) > MAX_DEPTH:
        return
    if isinstance(data, Mapping):
        for key, value in data.items():
            found = forbidden_character(key) if isinstance(key, str) else None
            if found:
                yield Problem((*path, key), f"the key {_UNSEEN.format(found)}")
            yield from invisible_characters(value, (*path, str(key)))
    elif isinstance(data, list | tuple):
        for at, value in enumerate(data):
            yield from invisible_characters(value, (*path, at))


class _LimitedComposer(Composer):
    """Composer of PyYAML that refuses texts with too many or too deeply nested nodes while it parses them."""

    _depth = _count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node of the YAML tree; PyYAML calls this method for each node.

        :raises NotReadableError: if there are too many nodes, or they are nested too deeply
        """
        self._depth += 1
        self._count += 1
        line = int(self.peek_event().start_mark.line) + 1  # type: ignore[attr-defined]  # of the parser
        if self._depth > MAX_DEPTH:
            raise NotReadableError(line, f"is nested too deeply: {MAX_DEPTH} levels are the most")
        if self._count > MAX_NODES:
            raise NotReadableError(line, f"has too many keys and values: {MAX_NODES:,} are the most")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Loader(_LimitedComposer, yaml.SafeLoader):
    """YAML loader in pure Python, for texts that libyaml rejects, and for systems without libyaml.

    Users see the messages of this loader only, never those of libyaml.
    """


if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    class _FastLoader(_LimitedComposer, CParser, Resolver):
        """YAML loader with the parser of libyaml, which takes an eighth of the time."""

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            Resolver.__init__(self)


def _compose(text: str, content: str) -> yaml.MappingNode:
    """Return the root of PyYAML's node tree for a YAML text.

    A text that libyaml does not accept is parsed again in Python, so that error messages are the same with and without
    libyaml.

    :param text: the YAML text
    :param content: end of the error message about a text without keys
    :raises NotReadableError: if the text is not a single YAML mapping, or exceeds a limit
    """
    root = None
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError, ValueError, OverflowError, RecursionError):
            root = _FastLoader(text).get_single_node()
    root = _compose_in_python(text) if root is None else root
    if root is None:
        raise NotReadableError(None, f"is empty; {content}")
    if not isinstance(root, yaml.MappingNode):
        raise NotReadableError(root.start_mark.line + 1, f"must be a mapping of keys to values; {content}")
    return root


def _compose_in_python(text: str) -> yaml.Node | None:
    """Return the root of PyYAML's node tree, or None for an empty text.

    :raises NotReadableError: if the text is not YAML, or exceeds a limit
    """
    try:
        root: yaml.Node | None = _Loader(text).get_single_node()
        return root
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ": ".join(part for part in (error.context, error.problem) if part)
        hint = "; indent with spaces instead of tabs" if "'\\t'" in message else ""
        raise NotReadableError(mark.line + 1 if mark else None, f"not valid YAML: {message}{hint}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotReadableError(line, f"not valid YAML: character #x{error.character:04x} is not allowed") from error
    except RecursionError as error:
        raise NotReadableError(None, f"is nested too deeply: {MAX_DEPTH} levels are the most") from error
    except (ValueError, OverflowError) as error:  # PyYAML raises these for an escape such as \UFFFFFFFF
        raise NotReadableError(None, "not valid YAML: an escape sequence is not a character") from error


class _NodeConverter:
    """Converter of PyYAML's node tree to plain data, which records faults.

    :param environment: environment variables that values may refer to
    :ivar faults: pairs of a line and the problem in that line
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._scalars = yaml.constructor.SafeConstructor()
        self._open: set[int] = set()
        self._done: dict[int, tuple[Any, int]] = {}
        self._count = 0
        self.faults: list[tuple[int, Problem]] = []

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        """Return the plain data of a node; record a fault and return None if the node is not allowed.

        :param node: node of PyYAML's tree
        :param path: key path of the node, for the fault
        :raises NotReadableError: if the data is too large or too deep once aliases are expanded
        """
        if id(node) in self._open:
            return self._fault(node, path, "contains itself by an alias")
        before = self._count
        if id(node) in self._done:
            data, size = self._done[id(node)]
            self._count += size
        else:
            self._open.add(id(node))
            self._count += 1
            data = self._fresh(node, path)
            self._open.remove(id(node))
            self._done[id(node)] = data, self._count - before
        if self._count > MAX_NODES or len(path) > MAX_DEPTH:
            what = f"{MAX_NODES:,} keys and values, {MAX_DEPTH} levels deep, are the most once aliases are written out"
            raise NotReadableError(node.start_mark.line + 1, f"is too large: {what}")
        return data

    def _fresh(self, node: yaml.Node, path: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path) if node.tag == f"{_TAG}map" else self._tagged(node, path)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != f"{_TAG}seq":
                return self._tagged(node, path)
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        kind, written = node.tag.removeprefix(_TAG), str(node.value)
        if kind in ("int", "float"):
            if len(written) > _MAX_NUMBER_LENGTH:
                return self._fault(node, path, "is too long for a number; put text in quotes")
            if not getattr(node, "style", None) and _AMBIGUOUS_NUMBER.fullmatch(written):
                return self._deceptive(node, path)
        if kind == "null" and path == _NULL_WORD_ALLOWED:
            return "null" if written else self._fault(node, path, "is empty; write error, null or skip")
        try:
            value = self._scalars.construct_object(node)
        except yaml.constructor.ConstructorError:
            return self._tagged(node, path)
        except (ValueError, LookupError, AttributeError, OverflowError):
            return self._fault(node, path, f"cannot be read as the {kind} that it looks like; put text in quotes")
        if isinstance(value, bytes):
            return self._tagged(node, path)
        return self._text(node, path, value) if isinstance(value, str) else value

    def _text(self, node: yaml.Node, path: KeyPath, written: str) -> str:
        try:
            value = expand(written, self._environment)
        except ValueError as error:
            self._fault(node, path, str(error))
            return written
        found = None if path == _DELIMITER else forbidden_character(value)
        if found:
            self._fault(node, path, _UNSEEN.format(found))
        return value

    def _deceptive(self, node: yaml.Node, path: KeyPath) -> None:
        try:
            number = self._scalars.construct_object(node)
        except ValueError:
            self._fault(node, path, "cannot be read as the number that it looks like; put text in quotes")
            return
        self._fault(node, path, f"{node.value} would be read as {number}; write that, or put text in quotes")

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, path, "a key must be plain text")
                continue
            name = str(key.value)
            self._count += 1
            if key.tag == f"{_TAG}merge":
                self._fault(key, (*path, name), "merge keys are not supported; write the keys out")
                continue
            found = forbidden_character(name, key=True)
            if found:
                self._fault(key, (*path, name), f"the key {_UNSEEN.format(found)}")
                continue
            if name in data:
                self._fault(key, (*path, name), f"given twice, first in line {lines[name]}")
            lines.setdefault(name, key.start_mark.line + 1)
            data[name] = self.value(value, (*path, name))
        return data

    def _tagged(self, node: yaml.Node, path: KeyPath) -> None:
        self._fault(node, path, f"the tag {node.tag} is not supported; leave it out")

    def _fault(self, node: yaml.Node, path: KeyPath, text: str) -> None:
        self.faults.append((node.start_mark.line + 1, Problem(path, text)))


def _children(node: yaml.Node) -> Iterator[tuple[str | int, int, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield str(key.value), key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield index, item.start_mark.line + 1, item
