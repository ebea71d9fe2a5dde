"""Interrupt a sink at a step of its work: end its process there, or let another process run in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A function that a sink calls, as ``monkeypatch.setattr(*step, …)`` replaces it.

    :param owner: its module or class
    :param name: its name there
    """

    owner: Any
    name: str

    @property
    def real(self) -> Callable[..., Any]:
        """The function as it is now."""
        function: Callable[..., Any] = getattr(self.owner, self.name)
        return function


class Killed(BaseException):
    """Raised by a test in place of the death of a process; no code of the package may catch it."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def after(real: Callable[..., Any], then: Callable[[], object]) -> Callable[..., Any]:
    """``real``, and then something else, as another process would do it."""

    def wrapper(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        then()
        return result

    return wrapper


def before(real: Callable[..., Any], first: Callable[[], object]) -> Callable[..., Any]:
    """Something else, and then ``real``; what the other process calls itself is not interrupted."""
    busy: list[None] = []

    def wrapper(*args: Any, **named: Any) -> Any:
        if not busy:
            busy.append(None)
            first()
            busy.clear()
        return real(*args, **named)

    return wrapper


def once(action: Callable[[], object]) -> Callable[[], None]:
    """``action`` the first time only."""
    pending = [action]

    def run() -> None:
        if pending:
            pending.pop()()

    return run
