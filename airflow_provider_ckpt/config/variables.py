"""Environment variables inside a YAML value: ``${NAME}``, or ``${NAME:-default}``; ``$${`` is a plain ``${``."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$(\$(?=\{)|\{(\w+)(?::-([^}]*))?\})")


def expand(text: str, environment: Mapping[str, str]) -> str:
    """The text with every variable replaced by its value.

    :param environment: the variables, by name
    :raises ValueError: if a variable without a default is not set
    """

    def value(found: re.Match[str]) -> str:
        name, default = found[2], found[3]
        if name is None:
            return "$"
        if name in environment:
            return environment[name]
        if default is None:
            raise ValueError(f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}")
        return default

    return _VARIABLE.sub(value, text)
