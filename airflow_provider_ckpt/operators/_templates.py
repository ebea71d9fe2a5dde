"""Reads what a template has put into a typed field: every rendered value is text, and an empty one means none.

Of None a template makes the text ``None``, which nothing but free text can be meant to say.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.numbers import whole

_NONE = frozenset({"", "none", "null"})
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def text(value: object) -> str | None:
    """A text that may say anything, ``null`` and ``none`` too; None where it is empty."""
    return None if value is None else str(value) or None


def word(value: object) -> str | None:
    """A name or a time; None where it is empty, or a template has made it of None."""
    found = str(value).strip() if value is not None else ""
    return None if found.lower() in _NONE else found


def flag(name: str, value: object) -> bool:
    """A truth value; none is false.

    :raises ConfigError: if it is neither true nor false
    """
    found = word(value)
    if found is None:
        return False
    if found.lower() not in _FLAGS:
        raise ConfigError(f"{name} is {found!r}; it must be true or false.")
    return _FLAGS[found.lower()]


def number(name: str, value: object) -> int | None:
    """A whole number, None where it is empty.

    :raises ConfigError: if it is none
    """
    found = word(value)
    try:
        return None if found is None else whole(found)
    except ValueError:
        raise ConfigError(f"{name} is {found!r}; it must be a whole number.") from None


def texts(name: str, value: object) -> tuple[str, ...]:
    """Several texts: a sequence, or what a template made of one (``['a', 'b']``), or a single text.

    :raises ConfigError: if it begins like a list and is none
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(str(item) for item in value)
    found = word(value)
    if found is None:
        return ()
    if not found.startswith("["):
        return (found,)
    try:
        items = ast.literal_eval(found)
    except (SyntaxError, ValueError):
        raise ConfigError(f"{name} is {found!r}; it must be a list of texts.") from None
    return tuple(str(item) for item in items)
