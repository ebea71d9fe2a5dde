"""Convert operators' fields from the text that Airflow's templates render to their types; an empty text means None.

A template renders None as the text ``None``, which means None too, except in a field for free text.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.numbers import parse_whole_number

_NONE_TEXTS = frozenset({"", "none", "null"})
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def free_text(value: object) -> str | None:
    """Return free text unchanged, even if it is ``null`` or ``none``; None if it is empty.

    :param value: value of the field
    """
    return None if value is None else str(value) or None


def optional_text(value: object) -> str | None:
    """Return a name or a time without surrounding spaces; None if the text is empty, ``none`` or ``null``.

    :param value: value of the field
    """
    found = str(value).strip() if value is not None else ""
    return None if found.lower() in _NONE_TEXTS else found


def boolean(name: str, value: object) -> bool:
    """Convert a rendered field, such as ``yes`` or ``false``, to a boolean; None and an empty text become False.

    :param name: name of the field, for the error message
    :param value: value of the field: a boolean, or the text that a template rendered
    :raises ConfigError: if the value is neither true nor false
    """
    found = optional_text(value)
    if found is None:
        return False
    if found.lower() not in _BOOLEANS:
        raise ConfigError(f"{name} is {found!r}; it must be true or false.")
    return _BOOLEANS[found.lower()]


def whole_number(name: str, value: object) -> int | None:
    """Convert a rendered field to a whole number; an empty field becomes None.

    :param name: name of the field, for the error message
    :param value: value of the field: a number, or the text that a template rendered
    :raises ConfigError: if the value is not a whole number
    """
    found = optional_text(value)
    try:
        return None if found is None else parse_whole_number(found)
    except ValueError:
        raise ConfigError(f"{name} is {found!r}; it must be a whole number.") from None


def text_tuple(name: str, value: object) -> tuple[str, ...]:
    """Convert a field to a tuple of texts; None and an empty text become an empty tuple.

    :param name: name of the field, for the error message
    :param value: value of the field: a sequence, a sequence as a template rendered it (``['a', 'b']``), or a single
        text
    :raises ConfigError: if the value is a text that begins with ``[`` and is not a list of texts
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(str(item) for item in value)
    found = optional_text(value)
    if found is None:
        return ()
    if not found.startswith("["):
        return (found,)
    try:
        items = ast.literal_eval(found)
    except (SyntaxError, ValueError):
        raise ConfigError(f"{name} is {found!r}; it must be a list of texts.") from None
    return tuple(str(item) for item in items)
