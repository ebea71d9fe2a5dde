"""Classify SQLSTATE codes as transient or not, for any database and driver (semantics, section 7).

Errors in the data (classes 22 and 23) are recognised in ``core/error_policy.py``.
"""

from __future__ import annotations

_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "57", "58"})
"""Classes (first two characters) of the SQLSTATEs of transient errors."""

_TRANSIENT_CODES = frozenset({"55P03", "25006", "25P03", "25P04"})
"""Transient codes of other classes: lock not available, server is a standby, session or transaction timed out."""

_SERVER_FAILURES = ("08", "53", "58", "57P0", "25006")
"""Prefixes of codes that mean the whole server is unreachable, full or broken."""


def is_transient(state: str) -> bool:
    """Return whether an SQLSTATE stands for a transient error, after which a retry can succeed."""
    return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_CODES


def is_server_failure(state: str) -> bool:
    """Return whether an SQLSTATE means that the whole server failed, not only one statement."""
    return state.startswith(_SERVER_FAILURES)
