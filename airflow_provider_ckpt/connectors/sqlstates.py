"""What an SQLSTATE says about trying again (semantics, section 7), whichever database and driver it comes from."""

from __future__ import annotations

_TRANSIENT = frozenset({"08", "40", "53", "57", "58"})
"""Classes that say: try again."""

_PASSING = frozenset({"55P03", "25006", "25P03", "25P04"})
"""And codes of other classes: a lock held, a server that is a standby for now, a session that took too long."""

_OF_ALL = ("08", "53", "58", "57P0", "25006")
"""Beginnings of codes by which the server as a whole is out of reach, full or broken."""


def passes(state: str) -> bool:
    """Whether trying again can help."""
    return state[:2] in _TRANSIENT or state in _PASSING


def is_of_all(state: str) -> bool:
    """Whether the server as a whole failed, and not this one statement."""
    return state.startswith(_OF_ALL)
