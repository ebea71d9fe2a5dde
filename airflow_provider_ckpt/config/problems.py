"""Convert pydantic's validation errors to problems that name the key and the values that it may have.

For an unknown key the problem names the nearest known one. ``load.py`` adds the line of a key in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, EnumType
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from airflow_provider_ckpt.config.characters import for_message, non_ascii_clause
from airflow_provider_ckpt.config.installed_connectors import types_with
from airflow_provider_ckpt.config.unknown_keys import KeyPath, annotation_at, suggestion, unknown_key_text

_KEY = "[key]"
"""Last part of pydantic's location of an error that concerns a key of a mapping, not the key's value."""

_ABSENT = frozenset({"missing", "extra_forbidden"})
_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "model_type": "a mapping of keys to values",
    "string_type": "text (put it in quotes)",
    "tuple_type": "a list, such as [id]",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a pipeline's declaration, to be shown as one line.

    :param path: path of the key, such as ``("retry", "jitter")``; the key need not exist in the file
    :param text: description of the error, such as ``must be at most 1``
    :param missing: whether the error is that a required key is missing
    """

    path: KeyPath
    text: str
    missing: bool = False

    @property
    def key(self) -> str:
        """The path as text with dots, such as ``retry.jitter``."""
        return ".".join(for_message(part) for part in self.path)


def to_problems(
    model: type[BaseModel],
    data: object,
    error: ValidationError,
    *,
    order: Callable[[KeyPath], int] | None = None,
    most: int,
) -> tuple[list[Problem], int]:
    """Return the first problems that validation found, one per key, and the number of all problems.

    :param model: the model that was validated
    :param data: the invalid data
    :param error: the validation error
    :param order: function that returns the line of a key, by which problems are sorted; None to keep pydantic's order.
        Missing keys come last
    :param most: maximum number of problems that are returned
    """
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_path.setdefault(_key_path(data, detail), []).append(detail)
    found = [(path, details, details[0]["type"] == "missing") for path, details in by_path.items()]
    found.sort(key=lambda item: (item[2], order(item[0]) if order is not None else 0))
    return [
        Problem(path, _problem_text(model, path, details, data), missing) for path, details, missing in found[:most]
    ], len(found)


def _key_path(data: object, detail: ErrorDetails) -> KeyPath:
    """Return the key path of a validation error.

    pydantic's location also contains the names of union members, which are not keys and are left out.

    :param data: the invalid data
    :param detail: one of pydantic's errors
    """
    found: list[str | int] = []
    for part in detail["loc"]:
        inside = isinstance(data, Mapping) and part in data
        listed = isinstance(data, Sequence) and not isinstance(data, str) and isinstance(part, int)
        if not inside and not listed:
            return (*found, part) if detail["type"] in _ABSENT else tuple(found)
        found.append(part)
        data = data[part]  # type: ignore[index]  # just checked, by shape
    return tuple(found)


def _problem_text(model: type[BaseModel], path: KeyPath, details: Sequence[ErrorDetails], data: object) -> str:
    """Return the description of the errors of one key.

    :param model: the model that was validated
    :param path: path of the key
    :param details: pydantic's errors of the key
    :param data: the invalid data
    """
    first = details[0]
    if first["type"] == "extra_forbidden":
        return unknown_key_text(model, path, data)
    if first["type"] == "missing":
        return "missing" + (_choices_clause(_choices(model, path, data)) or _needed_clause(path, data))
    if first["loc"][-1:] == (_KEY,):
        return f"unknown error type; {suggestion(for_message(path[-1]), _allowed_texts(first))}"
    if first["input"] is None and first["type"] == "model_type":
        return "is empty: give it keys, or leave it out"
    for detail in details:
        if detail["type"] == "value_error":
            return str(detail["ctx"]["error"])
    choices = [choice for detail in details for choice in _allowed_texts(detail)]
    others = [_EXPECTED[detail["type"]] for detail in details if detail["type"] in _EXPECTED]
    if choices:
        return _unsupported_text(first["input"], choices, others)
    return f"must be {' or '.join(dict.fromkeys(others))}" if others else _limit_text(first)


def _unsupported_text(value: object, choices: Sequence[str], others: Sequence[str]) -> str:
    word = for_message(value)
    given = "an empty value" if value is None else f"'{word}'"
    text = (
        f"{given} is not supported; supported: {', '.join([*choices, *dict.fromkeys(others)])}{non_ascii_clause(word)}"
    )
    close = get_close_matches(word, choices, 1)
    return f"{text}; did you mean {close[0]}?" if close else text


def _limit_text(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "string_pattern_mismatch":
            rule = "must be letters, digits, '_', '-' and '.', not begin with '-' or '.', and be 128 long at most"
            return rule + non_ascii_clause(for_message(detail["input"], 128))
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _allowed_texts(detail: ErrorDetails) -> list[str]:
    """Return the values that a literal or enum error allows; empty for other errors.

    pydantic gives the values as prose: ``'a', 'b' or 'c'``.
    """
    if detail["type"] not in ("literal_error", "enum"):
        return []
    expected: str = detail["ctx"]["expected"]
    return [word.strip().strip("'") for word in expected.replace(" or ", ", ").split(", ")]


def _choices(model: type[BaseModel], path: KeyPath, data: object) -> list[str]:
    """Return the texts that a key allows as its value; empty if its values are not limited to certain texts.

    The texts come from the key's enum or ``Literal`` type; ``source.type`` and ``sink.type`` allow the installed types.

    :param model: the model that was validated
    :param path: path of the key
    :param data: the invalid data
    """
    if path[1:] == ("type",) and path[0] in ("source", "sink"):
        return types_with("source" if path[0] == "source" else "sink")
    annotation = annotation_at(model, path, data)
    if isinstance(annotation, EnumType):
        members: Mapping[str, Enum] = annotation.__members__
        return [str(member.value) for member in members.values()]
    return [choice for choice in get_args(annotation) if isinstance(choice, str)]


def _choices_clause(choices: Sequence[str]) -> str:
    return f"; one of: {', '.join(choices)}" if choices else ""


def _needed_clause(path: KeyPath, data: object) -> str:
    """Return text for the error of a missing key of source or sink: it names the ``type`` that requires the key.

    For example: ``; type: kafka needs it``. The text is empty for keys of other sections.

    :param path: path of the missing key
    :param data: the invalid data
    """
    section = data.get(path[0]) if isinstance(data, Mapping) else None
    if len(path) != 2 or path[0] not in ("source", "sink") or not isinstance(section, Mapping):
        return ""
    return f"; type: {for_message(section.get('type'))} needs it"
