"""Choose the tables of a declaration that may work now, by deficit round robin, so that no table starves.

A *turn* is a period in which one table works, wave by wave; only some tables have a turn at the same time. At the
beginning of a turn the table gets a quantum of records. The turn ends when the table has read that many records and
another table waits. Records beyond the quantum are the table's deficit, which its later quanta repay. The decisions are
pure: the caller runs the tables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class DeficitRoundRobin:
    """Turns of several tables; each table waits for a turn, works, sleeps until it asks for a turn, or has ended.

    :param tables: names of the tables, in the order of their first turns
    :param quantum: number of records that a table may read in each turn while others wait, at least 1
    :param at_once: maximum number of tables that work at the same time, at least 1
    :param most_begun: maximum number of tables that have begun and not ended, at least ``at_once``
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
        """Begin turns of waiting tables, in order, as long as fewer than ``at_once`` tables work.

        A table that still has a deficit after it got its quantum waits for the next round.

        :return: the tables that begin their first turn
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
        """Return whether a table has a turn now."""
        return table in self._working

    def is_alone(self, table: str) -> bool:
        """Return whether no other table works or waits for a turn; other tables may sleep."""
        return not (self._working | set(self._waiting)) - {table}

    def charge(self, table: str, records: int) -> None:
        """Subtract the records of a wave from the quantum of a working table.

        The table's turn ends if the quantum is used up and another table can begin a turn. A wave that read nothing,
        because its batches failed, ends the turn as well.

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
        """End a table's turn, or its wait for a turn; the table keeps its deficit.

        A table sleeps while it waits for something other than a turn, such as a retry.

        :param table: the table
        """
        self._working.discard(table)
        if table in self._begun and table in self._waiting:
            self._waiting.remove(table)

    def ask(self, table: str) -> None:
        """Let a sleeping table wait for its next turn; nothing changes if the table works or waits already.

        :param table: the table, which has begun
        """
        if table not in self._working and table not in self._waiting:
            self._waiting.append(table)

    def end(self, table: str) -> None:
        """End the run of a table: it gets no further turn, and another table may begin in its place.

        :param table: the table
        """
        self.sleep(table)
        self._begun.discard(table)
        self._credit[table] = 0

    def _next(self) -> str | None:
        """Return the first waiting table that may work under the limit of begun tables; None if there is none."""
        may_begin = len(self._begun) < self.most_begun
        return next((table for table in self._waiting if may_begin or table in self._begun), None)
