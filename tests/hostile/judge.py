"""Independent judge of JSON records with the corpus' schema: Python's own parser, made strict."""

from __future__ import annotations

import json
import math
from typing import Any

_WHOLE = range(-(2**63), 2**63)
_LONGEST_NAME, _LONGEST_NUMBER = 50_000, 1000
"""Characters: the limits that the documentation tells. Nesting ends Python's parser, too."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def row_of(record: bytes) -> dict[str, Any] | None:
    """The row that a record is, or None if it is to be dead-lettered."""
    try:
        document = json.loads(
            record.decode("utf-8"),
            parse_int=_number,
            parse_float=_number,
            parse_constant=_refuse,
            object_pairs_hook=_once,
        )
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    try:
        return {"id": _whole(document["id"]), "name": _text(document["name"]), "x": _double(document["x"])}
    except (KeyError, ValueError):
        return None


def _number(text: str) -> _Number:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError("too long a number")
    return _Number(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs) or any(len(name) > _LONGEST_NAME for name in found):
        raise ValueError("a name comes twice, or is too long")
    return found


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _whole(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, _Number) or not value.removeprefix("-").isdigit() or int(value) not in _WHOLE:
        raise ValueError(value)
    return int(value)


def _text(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or isinstance(value, _Number)):
        raise ValueError(value)
    return value


def _double(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, _Number) or not math.isfinite(float(value)):
        raise ValueError(value)
    return float(value)
