"""Define the type of a percentage in a declaration: text such as ``50%``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer


def _parse_percentage(value: object) -> Decimal:
    found = re.fullmatch(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*", value) if isinstance(value, str) else None
    part = Decimal(found[1]) / 100 if found else value
    if not isinstance(part, Decimal) or not 0 <= part <= 1:
        raise ValueError("a percentage is a text such as 50%; from 0% to 100%")
    return part


Percentage = Annotated[
    Decimal, BeforeValidator(_parse_percentage), PlainSerializer(lambda part: f"{part * 100:f}%", return_type=str)
]
"""A percentage from 0% to 100%, written as text such as ``50%``; its value is a fraction from 0 to 1."""
