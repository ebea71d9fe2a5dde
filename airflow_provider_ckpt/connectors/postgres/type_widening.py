"""Compare PostgreSQL types: a column may change without loss to a wider type, which has all values of the old type."""

from __future__ import annotations

import re

_WIDER_INTEGERS = {"smallint": ("integer", "bigint"), "integer": ("bigint",)}
_LENGTH = re.compile(r"character varying\((\d+)\)")
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TIMESTAMP = re.compile(r"timestamp(?:\(\d\))? without time zone")
_TEXTS = ("text", "character varying")


def is_wider(before: str, after: str) -> bool:
    """Return whether type ``after`` is wider than ``before``: it has all values of ``before``, in the same order.

    :param before: the present type of a column, as ``format_type`` writes it
    :param after: the type to which the column may change
    """
    if after in _WIDER_INTEGERS.get(before, ()) or (before, after) == ("real", "double precision"):
        return True
    if before == "date":
        return _TIMESTAMP.fullmatch(after) is not None
    length = _LENGTH.fullmatch(before)
    if length or before in _TEXTS:
        longer = _LENGTH.fullmatch(after)
        if longer:
            return length is not None and int(longer[1]) > int(length[1])
        return after in _TEXTS and after != before
    exact = _NUMERIC.fullmatch(before)
    if exact is None:
        return False
    if after == "numeric":
        return True
    larger = _NUMERIC.fullmatch(after)
    if larger is None or after == before:
        return False
    scale, new_scale = int(exact[2]), int(larger[2])
    return new_scale >= scale and int(larger[1]) - new_scale >= int(exact[1]) - scale


def can_store(column: str, values: str) -> bool:
    """Return whether a column of one type can store all values of another type without loss.

    :param column: type of the column
    :param values: type of the values
    """
    return column == values or is_wider(values, column) or column in _TEXTS
