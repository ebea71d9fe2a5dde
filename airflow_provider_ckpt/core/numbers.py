"""Parse numbers that users write as text."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[-+]?[0-9]+")


def parse_whole_number(text: str) -> int:
    """Return the whole number that a text contains; only an optional sign and the digits 0 to 9 are accepted.

    ``int`` would also accept digits of other alphabets and underscores.

    :raises ValueError: if the text is not a whole number
    """
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)
