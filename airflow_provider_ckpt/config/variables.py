"""Expand environment variables in YAML values: ``${NAME}`` or ``${NAME:-default}``; ``$${`` is a literal ``${``."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$(\$(?=\{)|\{(?:(\w++)(?::-([^{}]*+))?+\})?+)")


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with every ``${NAME}`` replaced by the value of the environment variable.

    For a variable that is not set, ``${NAME:-default}`` is replaced by the default. ``$${`` becomes ``${``.

    :param text: one value of a YAML document
    :param environment: values of the environment variables, by name
    :raises ValueError: if a variable without a default is not set, or a ``${`` does not start a variable
    """

    def value(found: re.Match[str]) -> str:
        name, default = found[2], found[3]
        if found[1] == "$":
            return "$"
        if name is None:
            raise ValueError(
                "has a ${ that is not ${NAME} or ${NAME:-default}; correct it, or write $${ for a literal ${"
            )
        if name in environment:
            return environment[name]
        if default is None:
            raise ValueError(f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}")
        return default

    return _VARIABLE.sub(value, text)


def unset_variables(text: str, environment: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the environment variables that a text refers to without a default and that are not set.

    :param text: any text, such as a whole YAML document
    :param environment: values of the environment variables, by name
    """
    named = {found[2] for found in _VARIABLE.finditer(text) if found[2] is not None and found[3] is None}
    return frozenset(named - environment.keys())
