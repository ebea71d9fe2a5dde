"""Check the characters of a declaration: invisible characters, look-alikes of ASCII letters, and mixed alphabets.

A name with such a character looks like another name, so an error or warning shows the code point.
"""

from __future__ import annotations

import re
import unicodedata

_MAX_SHOWN = 60
_WORD = re.compile(r"\w+")
_ALLOWED = frozenset("\t\n\r")
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Bidirectional control characters; an editor shows a text with them in another order than it is stored."""


def for_message(value: object, most: int = _MAX_SHOWN) -> str:
    """Return a value as one line of text for an error message, truncated and with unprintable characters escaped.

    :param value: the value; ``str`` converts it to text
    :param most: maximum number of characters before the text is cut and ``...`` is added
    """
    text = str(value)
    cut = text if len(text) <= most else text[:most] + "..."
    return "".join(character if character.isprintable() else _code_point(character) for character in cut)


def forbidden_character(text: str, *, key: bool = False) -> str | None:
    """Return the code point and name of the first forbidden character in a text; None if there is none.

    Forbidden are control characters other than tab and line breaks, surrogates, and bidirectional control characters,
    which change the order in which a text is shown.

    :param text: the text
    :param key: whether the text is a key of a declaration, which may contain no invisible character at all
    """
    for character in text:
        kind = unicodedata.category(character)
        unseen = kind in ("Cf", "Zl", "Zp") or (kind == "Cc" and character in _ALLOWED)
        if (kind in ("Cc", "Cs") and character not in _ALLOWED) or character in _BIDIRECTIONAL or (key and unseen):
            return f"{_code_point(character)}{_name_clause(character)}"
    return None


def non_ascii_clause(text: str) -> str:
    """Return the end of an error message that names the first non-ASCII character of a text; empty if there is none.

    For example: ``; its 'é' is U+00E9 (LATIN SMALL LETTER E WITH ACUTE)``.
    """
    character = next((character for character in text if not character.isascii()), None)
    return (
        ""
        if character is None
        else f"; its {for_message(character)!r} is {_code_point(character)}{_name_clause(character)}"
    )


def mixed_alphabet_clause(text: str) -> str:
    """Return the part of a warning that names the first Cyrillic or Greek letter in a word with ASCII letters.

    For example: ``'л' is U+043B (CYRILLIC SMALL LETTER EL)``. Such a letter may look like a Latin one. The result is
    empty if there is none.
    """
    for word in _WORD.findall(text):
        others = [character for character in word if unicodedata.name(character, "").startswith(("CYRILLIC", "GREEK"))]
        if others and any(character.isascii() and character.isalpha() for character in word):
            return f"{for_message(others[0])!r} is {_code_point(others[0])}{_name_clause(others[0])}"
    return ""


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def _name_clause(character: str) -> str:
    name = unicodedata.name(character, "")
    return f" ({name})" if name else ""
