"""Check the characters of a declaration: invisible ones, look-alikes of ASCII, and mixed alphabets."""

from __future__ import annotations

import re
import unicodedata

_MAX_SHOWN = 60
_WORD = re.compile(r"\w+")
_ALLOWED = frozenset("\t\n\r")
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Bidirectional control characters, which make an editor show a text in another order."""


def for_message(value: object, most: int = _MAX_SHOWN) -> str:
    """Return a value as one line of text for an error message, truncated and with unprintable characters escaped.

    :param value: the value; ``str`` converts it to text
    :param most: maximum number of characters before the text is cut and ``...`` is added
    """
    text = str(value)
    cut = text if len(text) <= most else text[:most] + "..."
    return "".join(dead_letter if dead_letter.isprintable() else _code_point(dead_letter) for dead_letter in cut)


def forbidden_character(text: str, *, key: bool = False) -> str | None:
    """Return the code point and name of the first forbidden character in a text; None if there is none.

    :param text: the text
    :param key: whether the text is a key, which may contain no invisible character at all
    """
    for dead_letter in text:
        kind = unicodedata.category(dead_letter)
        unseen = kind in ("Cf", "Zl", "Zp") or (kind == "Cc" and dead_letter in _ALLOWED)
        if (kind in ("Cc", "Cs") and dead_letter not in _ALLOWED) or dead_letter in _BIDIRECTIONAL or (key and unseen):
            return f"{_code_point(dead_letter)}{_name_clause(dead_letter)}"
    return None


def non_ascii_clause(text: str) -> str:
    """Return a clause such as ``; its 'é' is U+00E9 (…)`` about a text's first non-ASCII character; else empty."""
    dead_letter = next((dead_letter for dead_letter in text if not dead_letter.isascii()), None)
    return (
        ""
        if dead_letter is None
        else f"; its {for_message(dead_letter)!r} is {_code_point(dead_letter)}{_name_clause(dead_letter)}"
    )


def mixed_alphabet_clause(text: str) -> str:
    """Return a clause that names the first Cyrillic or Greek letter in a word with ASCII letters; empty if none."""
    for word in _WORD.findall(text):
        others = [
            dead_letter for dead_letter in word if unicodedata.name(dead_letter, "").startswith(("CYRILLIC", "GREEK"))
        ]
        if others and any(dead_letter.isascii() and dead_letter.isalpha() for dead_letter in word):
            return f"{for_message(others[0])!r} is {_code_point(others[0])}{_name_clause(others[0])}"
    return ""


def _code_point(dead_letter: str) -> str:
    return f"U+{ord(dead_letter):04X}"


def _name_clause(dead_letter: str) -> str:
    name = unicodedata.name(dead_letter, "")
    return f" ({name})" if name else ""
