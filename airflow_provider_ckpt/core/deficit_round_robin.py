"""Deficit round robin over tables: which of them may work now, so that none of them starves (pure decisions).

Work is measured in records. A table whose turn begins gets a quantum of records; its turn ends when it has read them
and another table waits. What it read beyond the quantum is its deficit, which the quanta of later rounds repay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class DeficitRoundRobin:
    """Turns of several tables, each of which waits, works, sleeps until it asks for a turn, or has ended.

    :param tables: names of the tables, in the order of their first turns
    :param quantum: number of records that a table may read in each round while others wait, at least 1
    :param at_once: largest number of tables that work at a time, at least 1
    :param most_begun: largest number of tables that have begun and not ended, at least ``at_once``
    """

    tables: Iterable[str]
    quantum: int
    at_once: int
    most_begun: int
    _waiting: deque[str] = field(init=False)
    _working: set[str] = field(init=False, default_factory=set)
    _begun: set[str] = field(init=False, default_factory=set)
    _credit: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = deque(self.tables)
        self._credit = dict.fromkeys(self._waiting, 0)

    def grant(self) -> Sequence[str]:
        """Begin turns of waiting tables, in order, until enough work or none may; return the tables that never worked.

        A table that still has a deficit after it got the quantum of this round waits for the next one.
        """
        fresh = []
        while len(self._working) < self.at_once and (table := self._next()) is not None:
            self._waiting.remove(table)
            if self._credit[table] <= 0:
                self._credit[table] += self.quantum
            if self._credit[table] <= 0:
                self._waiting.append(table)
                continue
            self._working.add(table)
            if table not in self._begun:
                self._begun.add(table)
                fresh.append(table)
        return fresh

    def is_working(self, table: str) -> bool:
        """Return whether it is a table's turn."""
        return table in self._working

    def is_alone(self, table: str) -> bool:
        """Return whether no other table works or waits for its turn; others may sleep."""
        return not (self._working | set(self._waiting)) - {table}

    def charge(self, table: str, records: int) -> None:
        """Charge a working table for a wave; its turn ends if it has used it up and another table may have one.

        A wave that read nothing, because its batches failed, is not charged, but ends the turn as well.

        :param table: the table
        :param records: number of records that the wave has read
        """
        self._credit[table] -= records
        if self._credit[table] > 0 and records > 0:
            return
        if self._next() is not None:
            self._working.remove(table)
            self._waiting.append(table)
        elif self._credit[table] <= 0:  # rounds in which no other table takes part
            self._credit[table] = self._credit[table] % self.quantum or self.quantum

    def sleep(self, table: str) -> None:
        """End a table's turn or wait for one, because it waits for something else; it keeps its deficit.

        :param table: the table
        """
        self._working.discard(table)
        if table in self._begun and table in self._waiting:
            self._waiting.remove(table)

    def ask(self, table: str) -> None:
        """Have a table that has begun wait for its next turn; nothing changes if it works or waits.

        :param table: the table
        """
        if table not in self._working and table not in self._waiting:
            self._waiting.append(table)

    def end(self, table: str) -> None:
        """End a table's run: it has no turn any more, and leaves its place to another one.

        :param table: the table
        """
        self.sleep(table)
        self._begun.discard(table)
        self._credit[table] = 0

    def _next(self) -> str | None:
        """Return the first waiting table that may have a turn, as far as that depends on others; None if none may."""
        may_begin = len(self._begun) < self.most_begun
        return next((table for table in self._waiting if may_begin or table in self._begun), None)
