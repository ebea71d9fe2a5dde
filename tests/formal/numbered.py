"""Give each distinct value a number, so that a world consists of small integers, which are fast to hash and compact."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Numbered(Generic[T]):
    """Gives every distinct value a number, from 0."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        """The value's number."""
        found = self._numbers.setdefault(value, len(self._values))
        if found == len(self._values):
            self._values.append(value)
        return found

    def __getitem__(self, number: int) -> T:
        """The value of a number."""
        return self._values[number]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._values)
