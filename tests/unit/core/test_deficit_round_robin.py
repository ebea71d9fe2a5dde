"""Turns of several tables: none starves, even if others never end; a table that fails keeps its deficit."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_provider_ckpt.core.deficit_round_robin import DeficitRoundRobin

MOST_RECORDS = 500
"""Number of records of the largest wave."""


class Turns(RuleBasedStateMachine):
    """Tables that execute waves of any size, fail, sleep, pause and end, in any order.

    ``NoTableStarves``: while a table waits that may have a turn, any other table reads at most one quantum for each
    round that the waiting one needs, and the rest of one wave. While a table waits to be in progress, those in progress
    read together at most what their turns allow before they pause.
    """

    @initialize(
        tables=st.integers(1, 7),
        quantum=st.integers(1, 300),
        at_once=st.integers(1, 3),
        more=st.integers(0, 3),
        turns_each=st.one_of(st.none(), st.integers(1, 3)),
    )
    def begin(self, tables: int, quantum: int, at_once: int, more: int, turns_each: int | None) -> None:
        self.limits = at_once, at_once + more
        self.quantum = quantum
        self.turns_each = turns_each
        self.tables = [f"t{number}" for number in range(tables)]
        self.turns = DeficitRoundRobin(self.tables, quantum, *self.limits, turns_each)
        self.working: set[str] = set()
        self.waiting = list(self.tables)
        self.asleep: set[str] = set()
        self.paused: set[str] = set()
        self.in_progress: set[str] = set()
        self.deficit: dict[str, int] = dict.fromkeys(self.tables, 0)
        self.rounds: dict[str, int] = {}
        self.read: dict[str, dict[str, int]] = {}
        self.allowed: dict[str, int] = {}
        self.read_by_all: dict[str, int] = {}
        self._grant()

    def _may_have_turn(self) -> set[str]:
        may_begin = len(self.in_progress) < self.limits[1]
        return {table for table in self.waiting if may_begin or table in self.in_progress}

    def _outside(self) -> list[str]:
        return [table for table in self.waiting if table not in self.in_progress]

    def _grant(self) -> None:
        self._begin_turns()
        for table in sorted(self.asleep):
            if table in self.in_progress and self.turns.must_pause(table, sleeps=True):
                self._pause(table)
                self._begin_turns()
        self._note_waits()

    def _begin_turns(self) -> None:
        fresh = self.turns.grant()
        assert not set(fresh) & self.in_progress
        assert len(set(fresh)) == len(fresh)
        self.working = {table for table in self.tables if self.turns.is_working(table)}
        self.in_progress |= set(fresh)
        assert self.working <= self.in_progress
        self.waiting = [table for table in self.waiting if table not in self.working]

    def _pause(self, table: str) -> None:
        assert self.turns_each is not None
        assert len(self.in_progress) == self.limits[1]
        assert self._outside()
        self.turns.pause(table)
        self.in_progress.remove(table)

    def _note_waits(self) -> None:
        may = self._may_have_turn()
        for table in list(self.read):
            if table not in may:
                del self.read[table]
        for table in may - self.read.keys():
            self.read[table] = defaultdict(int)
            self.rounds[table] = self._rounds(table)
        outside = [table for table in self._outside() if table not in may and self.turns_each is not None]
        for table in list(self.allowed):
            if table not in outside:
                del self.allowed[table], self.read_by_all[table]
        for table in outside:
            if table not in self.allowed and self.turns_each is not None:
                turns = (self.limits[1] + len(self.tables) * self._rounds(table)) * self.turns_each
                self.allowed[table] = turns * (self.quantum + MOST_RECORDS)
                self.read_by_all[table] = 0

    def _rounds(self, table: str) -> int:
        """Return the number of quanta after which a table has no deficit."""
        return max(self.deficit[table], 0) // self.quantum + 1

    def _one_of(self, data: st.DataObject, tables: Iterable[str]) -> str:
        return data.draw(st.sampled_from(sorted(tables)))

    @precondition(lambda self: self.working)
    @rule(data=st.data(), records=st.integers(1, MOST_RECORDS))
    def wave(self, data: st.DataObject, records: int) -> None:
        table = self._one_of(data, self.working)
        for found in self.read.values():
            found[table] += records
        for waiting in self.read_by_all:
            self.read_by_all[waiting] += records
        self.turns.charge(table, records)
        if not self.turns.is_working(table):
            self.working.remove(table)
            self.deficit[table] = -self.turns._credit[table]
            if self.turns.must_pause(table, sleeps=False):
                self._pause(table)
                self.turns.ask(table)
            self.waiting.append(table)
        self._grant()

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """All batches of a wave fail, and the table waits for a retry."""
        table = self._one_of(data, self.working)
        before = self.turns._credit[table]
        others = self._may_have_turn()
        self.turns.charge(table, 0)
        may_pause = self.turns_each is not None and bool(self._outside())
        assert self.turns.is_working(table) is not bool(others) or may_pause
        self.turns.sleep(table)
        assert self.turns._credit[table] == before
        self.deficit[table] = -before
        self.working.remove(table)
        self.asleep.add(table)
        self._grant()
        assert table not in self.working

    @precondition(lambda self: set(self.waiting) & self.in_progress)
    @rule(data=st.data())
    def sleep_instead_of_waiting(self, data: st.DataObject) -> None:
        table = self._one_of(data, set(self.waiting) & self.in_progress)
        self.turns.sleep(table)
        self.waiting.remove(table)
        self.asleep.add(table)
        self._grant()
        assert table not in self.working

    @precondition(lambda self: self.asleep)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        table = self._one_of(data, self.asleep)
        self.turns.ask(table)
        self.turns.ask(table)
        self.asleep.remove(table)
        self.waiting.append(table)
        self._grant()

    @precondition(lambda self: self.in_progress)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        table = self._one_of(data, self.in_progress)
        self.turns.end(table)
        for names in (self.in_progress, self.working, self.asleep):
            names.discard(table)
        self.waiting = [name for name in self.waiting if name != table]
        self.read.pop(table, None)
        self._grant()
        assert table not in self.working

    @rule()
    def nothing(self) -> None:
        """Let time pass, also after all tables have ended."""
        self._grant()

    @invariant()
    def limits_are_kept(self) -> None:
        if hasattr(self, "turns"):
            assert len(self.working) <= self.limits[0]
            assert len(self.in_progress) <= self.limits[1]

    @invariant()
    def no_turn_is_left_unused(self) -> None:
        if hasattr(self, "turns") and self._may_have_turn():
            assert len(self.working) == self.limits[0]

    @invariant()
    def no_table_starves(self) -> None:
        if hasattr(self, "turns"):
            for table, others in self.read.items():
                for records in others.values():
                    assert records <= self.rounds[table] * self.quantum + MOST_RECORDS

    @invariant()
    def no_table_waits_forever_to_be_in_progress(self) -> None:
        if hasattr(self, "turns"):
            for table, records in self.read_by_all.items():
                assert records <= self.allowed[table]
                assert not self.asleep & self.in_progress

    @invariant()
    def others_count_while_they_work_or_wait(self) -> None:
        if hasattr(self, "turns"):
            for table in self.tables:
                assert self.turns.is_alone(table) == (not (self.working | set(self.waiting)) - {table})


def test_no_table_starves() -> None:
    run_state_machine_as_test(Turns, settings=settings(max_examples=60, stateful_step_count=40))


@given(st.lists(st.integers(1, MOST_RECORDS), min_size=1, max_size=200), st.integers(1, 300))
def test_two_tables_that_both_have_work_read_about_as_many_records(waves: list[int], quantum: int) -> None:
    turns = DeficitRoundRobin(["a", "b"], quantum, at_once=1, most_in_progress=2)
    read = {"a": 0, "b": 0}
    for records in waves:
        turns.grant()
        [table] = [name for name in read if turns.is_working(name)]
        read[table] += records
        turns.charge(table, records)

        assert abs(read["a"] - read["b"]) <= quantum + MOST_RECORDS


@given(st.permutations([*(f"large {number}" for number in range(4)), *(f"small {number}" for number in range(20))]))
def test_small_tables_do_not_wait_for_four_large_ones(order: list[str]) -> None:
    turns = DeficitRoundRobin(order, 1000, at_once=4, most_in_progress=8)
    running = list(turns.grant())
    ended: list[str] = []
    waves = 0
    while len(ended) < 20:
        table = next(name for name in running if turns.is_working(name))
        running.remove(table)
        waves += 1
        assert waves <= 20 + 4 * 2, ended
        if table.startswith("large"):
            running.append(table)  # its waves never end
            turns.charge(table, 50_000)
        else:
            turns.charge(table, 10)
            turns.end(table)
            ended.append(table)
        running += turns.grant()


def test_a_table_alone_is_not_in_debt_when_another_one_asks() -> None:
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_in_progress=2)
    assert turns.grant() == ["a"]
    turns.charge("a", 250)
    assert turns.grant() == ["b"]
    turns.sleep("b")
    turns.grant()
    for _ in range(1000):
        turns.charge("a", 999)
        assert turns.is_working("a")
    turns.ask("b")
    turns.charge("a", 100)
    turns.grant()
    assert turns.is_working("b")
    turns.charge("b", 100)
    turns.grant()

    assert turns.is_working("a")


def test_a_table_that_failed_often_has_saved_up_nothing() -> None:
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_in_progress=2)
    for _ in range(10):
        turns.grant()
        assert turns.is_working("a")
        turns.charge("a", 0)
        turns.sleep("a")
        turns.grant()
        assert turns.is_working("b")
        turns.ask("a")
        turns.charge("b", 100)
    turns.grant()
    assert turns.is_working("a")

    turns.charge("a", 100)
    turns.grant()

    assert turns.is_working("b")


def test_a_wave_that_fails_costs_the_turn_but_no_records() -> None:
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_in_progress=2)
    turns.grant()
    turns.charge("a", 40)
    assert turns.is_working("a")
    turns.charge("a", 0)
    assert not turns.is_working("a")
    turns.grant()
    turns.charge("b", 100)
    turns.grant()
    turns.charge("a", 59)
    assert turns.is_working("a")
    turns.charge("a", 1)

    assert not turns.is_working("a")


def test_a_table_that_sleeps_gets_no_turn_until_it_asks() -> None:
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_in_progress=2)
    turns.grant()
    turns.charge("a", 100)
    turns.grant()
    turns.sleep("a")
    turns.charge("b", 100)
    turns.grant()
    assert turns.is_working("b")
    turns.ask("a")
    turns.charge("b", 100)
    turns.grant()
    assert turns.is_working("a")
    turns.sleep("a")
    turns.grant()

    assert turns.is_working("b")


def test_no_more_tables_begin_than_may_and_those_that_have_begun_take_turns() -> None:
    turns = DeficitRoundRobin("abcd", 100, at_once=1, most_in_progress=2)
    fresh: list[str] = []
    order: list[str] = []
    for _ in range(6):
        fresh += turns.grant()
        [table] = [name for name in "abcd" if turns.is_working(name)]
        order.append(table)
        turns.charge(table, 100)
    turns.end("a")
    fresh += turns.grant()

    assert "".join(order) == "ababab"
    assert fresh == ["a", "b", "c"]


@given(
    tables=st.integers(1, 12),
    quantum=st.integers(100, 300),
    at_once=st.integers(1, 3),
    more=st.integers(0, 3),
    turns_each=st.integers(1, 3),
    waves=st.lists(st.just(0) | st.integers(100, MOST_RECORDS), min_size=1, max_size=20).filter(any),
    closing=st.integers(0, 3),
)
def test_each_table_begins_after_a_bounded_number_of_records_although_no_table_ends(
    tables: int, quantum: int, at_once: int, more: int, turns_each: int, waves: list[int], closing: int
) -> None:
    turns = DeficitRoundRobin(map(str, range(tables)), quantum, at_once, at_once + more, turns_each)
    begun = list(turns.grant())
    pausing: list[tuple[str, int]] = []
    records = 0
    sizes = itertools.cycle(waves)
    for step in itertools.count():
        if len(begun) == tables:
            break
        working = [table for table in map(str, range(tables)) if turns.is_working(table)]
        if working:
            table = working[step % len(working)]
            read = next(sizes)
            records += read
            turns.charge(table, read)
            if turns.must_pause(table, sleeps=False):
                pausing.append((table, step + closing))
        for table in [name for name, until in pausing if until <= step]:
            turns.pause(table)
            turns.ask(table)
        pausing = [(name, until) for name, until in pausing if until > step]
        begun += [table for table in turns.grant() if table not in begun]
        # A table in progress takes so many turns before it pauses, and others as many more while it closes.
        assert records <= tables * (turns_each + closing) * (quantum + MOST_RECORDS) * (1 + MOST_RECORDS // quantum)
    assert begun == list(map(str, range(tables)))


def test_tables_that_never_end_pause_after_their_turns_so_that_others_begin() -> None:
    turns = DeficitRoundRobin("abcd", 100, at_once=1, most_in_progress=2, turns_each=2)
    order: list[str] = []
    for _ in range(16):
        turns.grant()
        [table] = [name for name in "abcd" if turns.is_working(name)]
        order.append(table)
        turns.charge(table, 100)
        if turns.must_pause(table, sleeps=False):
            turns.pause(table)
            turns.ask(table)

    assert "".join(order) == "abacbdcadbacbdca"


def test_a_table_pauses_only_while_another_one_waits_to_be_in_progress() -> None:
    turns = DeficitRoundRobin("ab", 100, at_once=1, most_in_progress=1, turns_each=2)
    turns.grant()
    turns.charge("a", 100)
    assert turns.is_working("a")
    turns.charge("a", 100)
    assert turns.must_pause("a", sleeps=False)
    turns.pause("a")
    assert turns.grant() == ["b"]
    for _ in range(10):
        turns.charge("b", 100)
        assert not turns.must_pause("b", sleeps=False)
    turns.ask("a")
    turns.charge("b", 100)

    assert turns.must_pause("b", sleeps=False)


def test_no_more_tables_pause_than_others_wait() -> None:
    turns = DeficitRoundRobin("abcd", 100, at_once=3, most_in_progress=3, turns_each=1)
    turns.grant()
    for table in "abc":
        turns.sleep(table)

    assert [turns.must_pause(table, sleeps=True) for table in "abc"] == [True, False, False]


def test_a_table_that_cannot_pause_goes_on_and_another_one_pauses() -> None:
    turns = DeficitRoundRobin("abc", 100, at_once=1, most_in_progress=2, turns_each=1)
    turns.grant()
    turns.charge("a", 100)
    turns.grant()
    turns.charge("b", 100)
    assert turns.must_pause("b", sleeps=False)
    turns.ask("b")
    assert not turns.must_pause("b", sleeps=False)
    turns.grant()
    turns.charge("a", 100)
    assert turns.must_pause("a", sleeps=False)
    turns.sleep("a")
    assert not turns.must_pause("a", sleeps=False)
    assert turns.must_pause("a", sleeps=True)
    turns.pause("a")
    turns.grant()
    assert turns.is_working("c")


def test_no_table_pauses_while_another_one_can_be_in_progress_beside_it() -> None:
    turns = DeficitRoundRobin("abcd", 100, at_once=1, most_in_progress=3, turns_each=1)
    turns.grant()
    turns.sleep("a")
    turns.grant()

    assert not turns.must_pause("a", sleeps=True)


def test_a_table_that_pauses_keeps_its_deficit() -> None:
    turns = DeficitRoundRobin("ab", 100, at_once=1, most_in_progress=1, turns_each=1)
    turns.grant()
    turns.charge("a", 250)
    turns.pause("a")
    turns.ask("a")
    assert turns.grant() == ["b"]
    turns.charge("b", 100)
    turns.pause("b")
    turns.ask("b")

    assert turns.grant() == ["b"]


def test_a_table_that_sleeps_after_an_outage_has_no_turn_to_end() -> None:
    turns = DeficitRoundRobin("abc", 100, at_once=1, most_in_progress=3)
    turns.grant()
    turns.sleep("a")
    turns.grant()
    turns.charge("a", 0)

    assert [name for name in "abc" if turns.is_working(name)] == ["b"]
