"""Check the characters of a declaration: invisible ones, look-alikes of ASCII, and mixed alphabets."""

from __future__ import annotations

import re
import unicodedata

_SHOWN = 60
_WORD = re.compile(r"\w+")
_ALLOWED = frozenset("\t\n\r")
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Bidirectional control characters, which make an editor show a text in another order."""


def shown(value: object, most: int = _SHOWN) -> str:
    """Return a value as text for an error message: on one line, invisible characters escaped, and truncated.

    :param value: the value
    :param most: maximum number of its characters
    """
    text = str(value)
    cut = text if len(text) <= most else text[:most] + "..."
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in cut)


def forbidden(text: str, *, key: bool = False) -> str | None:
    """Return the code point and name of the first forbidden character in a text; None if there is none.

    :param text: the text
    :param key: whether the text is a key, which may contain no invisible character at all
    """
    for letter in text:
        kind = unicodedata.category(letter)
        unseen = kind in ("Cf", "Zl", "Zp") or (kind == "Cc" and letter in _ALLOWED)
        if (kind in ("Cc", "Cs") and letter not in _ALLOWED) or letter in _TURNING or (key and unseen):
            return f"{_escaped(letter)}{_named(letter)}"
    return None


def look_alike(text: str) -> str:
    """Return a clause, after a semicolon, that names the first character that is not ASCII; empty if there is none."""
    letter = next((letter for letter in text if not letter.isascii()), None)
    return "" if letter is None else f"; its {shown(letter)!r} is {_escaped(letter)}{_named(letter)}"


def mixed_alphabets(text: str) -> str:
    """Return a clause that names a Cyrillic or Greek letter in a word with ASCII letters; empty if there is none."""
    for word in _WORD.findall(text):
        others = [letter for letter in word if unicodedata.name(letter, "").startswith(("CYRILLIC", "GREEK"))]
        if others and any(letter.isascii() and letter.isalpha() for letter in word):
            return f"{shown(others[0])!r} is {_escaped(others[0])}{_named(others[0])}"
    return ""


def _escaped(letter: str) -> str:
    return f"U+{ord(letter):04X}"


def _named(letter: str) -> str:
    name = unicodedata.name(letter, "")
    return f" ({name})" if name else ""
