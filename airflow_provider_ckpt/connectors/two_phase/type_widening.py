"""Compare types of Delta and Iceberg columns: a wider type has all values of a narrower type.

The types are given by the formats' own names, such as ``long`` or ``decimal(9, 2)``.
"""

from __future__ import annotations

import re

_INTEGERS = {"byte": 0, "short": 1, "int": 2, "integer": 2, "long": 3}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def is_wider(before: str, after: str) -> bool:
    """Return whether a type has all values of another type, and more; False for types of different kinds.

    :param before: name of the narrower type
    :param after: name of the type that may be wider
    """
    if before in _INTEGERS and after in _INTEGERS:
        return _INTEGERS[after] > _INTEGERS[before]
    narrow, wide = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    if narrow is None or wide is None:
        return (before, after) == ("float", "double")
    scale, new_scale = int(narrow[2]), int(wide[2])
    digits, new_digits = int(narrow[1]) - scale, int(wide[1]) - new_scale
    return new_scale >= scale and new_digits >= digits and (new_digits, new_scale) != (digits, scale)
