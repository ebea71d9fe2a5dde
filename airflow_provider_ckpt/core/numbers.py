"""Numbers that people write as text."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[-+]?[0-9]+")


def whole(text: str) -> int:
    """The whole number that a text is; digits of other alphabets, which ``int`` takes, are none.

    :raises ValueError: if it is none
    """
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)
