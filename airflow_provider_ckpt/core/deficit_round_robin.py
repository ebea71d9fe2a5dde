"""Choose the tables of a declaration that may work now, by deficit round robin, so that no table starves.

A *turn* is a period in which one table sends its records, wave by wave; the number of tables that have a turn at the
same time is limited. At the beginning of a turn the table gets a quantum of records. The turn ends when the table has
read that many records and another table waits. Records that it read beyond the quantum are the table's deficit, which
is subtracted from its later quanta.

A table is *in progress* from its first turn until it pauses or ends. The number of tables in progress is limited too,
since each holds a lease and connections. If this limit is reached while another table waits for its first turn, a table
that has had a certain number of turns, or that sleeps, is to *pause*: it is then no longer in progress, and waits
behind the others. A table that is not able to pause continues to take turns. The functions only decide; the caller runs
the tables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class DeficitRoundRobin:
    """Turns of several tables; each table waits for a turn, works, sleeps until it asks for a turn, or has ended.

    A table is in progress from its first turn until it pauses or ends.

    :param tables: names of the tables, in the order of their first turns
    :param quantum: number of records that a table may read in each turn while others wait, at least 1
    :param at_once: maximum number of tables that work at the same time, at least 1
    :param most_in_progress: maximum number of tables in progress, at least ``at_once``
    :param turns_each: number of turns after which a table in progress is to pause if another one waits to be in
        progress, at least 1; None if no table pauses
    """

    tables: Iterable[str]
    quantum: int
    at_once: int
    most_in_progress: int
    turns_each: int | None = None
    _waiting: deque[str] = field(init=False)
    _working: set[str] = field(init=False, default_factory=set)
    _turns: dict[str, int] = field(init=False, default_factory=dict)
    _to_pause: set[str] = field(init=False, default_factory=set)
    _credit: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = deque(self.tables)
        self._credit = dict.fromkeys(self._waiting, 0)

    def grant(self) -> Sequence[str]:
        """Begin turns of waiting tables, in order, as long as fewer than ``at_once`` tables work.

        A table that still has a deficit after it got its quantum goes back to the end of the queue.

        :return: the tables that this call has put in progress
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
            if table not in self._turns:
                self._turns[table] = 0
                fresh.append(table)
            self._turns[table] += 1
        return fresh

    def is_working(self, table: str) -> bool:
        """Return whether a table has a turn now."""
        return table in self._working

    def is_alone(self, table: str) -> bool:
        """Return whether no other table works or waits for a turn; other tables may sleep."""
        return not (self._working | set(self._waiting)) - {table}

    def charge(self, table: str, records: int) -> None:
        """Subtract the records of a wave from a table's quantum, and end the table's turn if the quantum is used up.

        The turn ends only if another table can begin a turn, or waits to be in progress in its place. A wave that read
        nothing, because its batches failed, uses up the quantum as well. A table that sleeps has no turn to end.

        :param table: the table
        :param records: number of records that the wave has read
        """
        self._credit[table] -= records
        if table not in self._working or (self._credit[table] > 0 and records > 0):
            return
        if self._is_crowded and self.turns_each is not None and self._turns[table] >= self.turns_each:
            self._working.remove(table)
            self._to_pause.add(table)
        elif self._next() is not None:
            self._working.remove(table)
            self._waiting.append(table)
        elif self._credit[table] <= 0:  # no other table waits, so the next quantum begins at once
            self._credit[table] = self._credit[table] % self.quantum or self.quantum
            self._turns[table] += 1

    def sleep(self, table: str) -> None:
        """End a table's turn, or its wait for a turn; the table keeps its deficit (records beyond its quanta).

        A table sleeps while it waits for something other than a turn, such as a retry.

        :param table: the table
        """
        self._working.discard(table)
        self._to_pause.discard(table)
        if table in self._waiting:
            self._waiting.remove(table)

    def ask(self, table: str) -> None:
        """Let a sleeping or paused table wait for its next turn; nothing changes if it works or waits already.

        A table that was to pause, but has not paused, stays in progress.

        :param table: the table, which has had a turn
        """
        self._to_pause.discard(table)
        if table not in self._working and table not in self._waiting:
            self._waiting.append(table)

    def must_pause(self, table: str, *, sleeps: bool) -> bool:
        """Return whether a table in progress is to pause now, so that another one can be in progress in its place.

        :param table: the table
        :param sleeps: whether the table sleeps; then the number of its turns does not matter
        """
        if sleeps and self._is_crowded:
            self._to_pause.add(table)
        return table in self._to_pause

    def pause(self, table: str) -> None:
        """Record that a table has paused: it is no longer in progress, and gets no turn until it has asked for one.

        The table keeps its deficit.

        :param table: the table
        """
        self.sleep(table)
        self._turns.pop(table, None)

    def end(self, table: str) -> None:
        """End the run of a table: it gets no further turn, and another table may be in progress in its place.

        :param table: the table
        """
        self.pause(table)
        self._credit[table] = 0

    @property
    def _is_crowded(self) -> bool:
        """True if the limit of tables in progress is reached, and another table has to pause for one that waits.

        Tables that are to pause already make room for as many tables that wait. Always False if no table pauses.
        """
        if self.turns_each is None or len(self._turns) < self.most_in_progress:
            return False
        return sum(table not in self._turns for table in self._waiting) > len(self._to_pause)

    def _next(self) -> str | None:
        """Return the first waiting table that is in progress or may become so; None if there is none."""
        may_begin = len(self._turns) < self.most_in_progress
        return next((table for table in self._waiting if may_begin or table in self._turns), None)
