"""Database sessions that the runs of one process pass on to each other, instead of each opening its own.

Opening a session can cost as much as all statements that a small run executes in it: PostgreSQL starts a process for
each, which reads its catalog anew. Sessions are kept only while several runs share a process (:func:`keep_sessions`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

_MAX_IDLE_SECONDS = 5.0
"""Seconds after which an idle session is closed instead of used again, so that runs follow a switchover to another
server, and the server has few idle sessions."""


class Session(Protocol):
    """Interface of a database session that can be kept, such as a psycopg2 connection."""

    def close(self) -> object:
        """Close the session."""


@dataclass
class _Idle:
    """The idle sessions of this process.

    :ivar lock: lock held while the other attributes are used
    :ivar users: number of :func:`keep_sessions` blocks in progress; 0 if sessions are not kept
    :ivar sessions: idle sessions with the key and the time since when each is idle, oldest first
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    sessions: list[tuple[float, str, Session]] = field(default_factory=list)


_IDLE = _Idle()


@contextmanager
def keep_sessions() -> Iterator[None]:
    """Keep sessions that are given back in the ``with`` block, and close those that are idle at its end."""
    with _IDLE.lock:
        _IDLE.users += 1
    try:
        yield
    finally:
        with _IDLE.lock:
            _IDLE.users -= 1
            left = [] if _IDLE.users else _IDLE.sessions
            _IDLE.sessions = _IDLE.sessions if _IDLE.users else []
        for _, _, session in left:
            session.close()


def take(key: str) -> Session | None:
    """Return a session that was given back under a key a short time ago, which is then no longer kept; None without.

    The server may have ended the session meanwhile.

    :param key: text that is equal for sessions that can replace each other, such as address, user and settings
    """
    with _IDLE.lock:
        found = next((item for item in reversed(_IDLE.sessions) if item[1] == key), None)
        if found is not None:
            _IDLE.sessions.remove(found)
    if found is None or time.monotonic() - found[0] <= _MAX_IDLE_SECONDS:
        return None if found is None else found[2]
    found[2].close()
    return None


def give_back(key: str, session: Session) -> None:
    """Keep a session for other runs, or close it if no runs share this process.

    :param key: see :func:`take`
    :param session: the session, outside of a transaction
    """
    now = time.monotonic()
    with _IDLE.lock:
        if _IDLE.users:
            _IDLE.sessions.append((now, key, session))
            closed = [item[2] for item in _IDLE.sessions if now - item[0] > _MAX_IDLE_SECONDS]
            _IDLE.sessions = [item for item in _IDLE.sessions if now - item[0] <= _MAX_IDLE_SECONDS]
        else:
            closed = [session]
    for each in closed:
        each.close()
