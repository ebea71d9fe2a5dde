"""Turns of several tables: none starves, a table that fails keeps its deficit, and no turn is left unused."""

from __future__ import annotations

from collections import defaultdict

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
    """Tables that execute waves of any size, fail, sleep and end, in any order.

    ``NoTableStarves``: while a table waits that may have a turn, any other table reads at most one quantum for each
    round that the waiting one needs, and the rest of one wave.
    """

    @initialize(
        tables=st.integers(1, 7),
        quantum=st.integers(1, 300),
        at_once=st.integers(1, 3),
        more=st.integers(0, 3),
    )
    def begin(self, tables: int, quantum: int, at_once: int, more: int) -> None:
        self.limits = at_once, at_once + more
        self.quantum = quantum
        self.tables = [f"t{number}" for number in range(tables)]
        self.turns = DeficitRoundRobin(self.tables, quantum, *self.limits)
        self.working: set[str] = set()
        self.waiting = set(self.tables)
        self.asleep: set[str] = set()
        self.begun: set[str] = set()
        self.deficit: dict[str, int] = dict.fromkeys(self.tables, 0)
        self.rounds: dict[str, int] = {}
        self.read: dict[str, dict[str, int]] = {}
        self._grant()

    def _may_have_turn(self) -> set[str]:
        may_begin = len(self.begun) < self.limits[1]
        return {table for table in self.waiting if may_begin or table in self.begun}

    def _grant(self) -> None:
        fresh = self.turns.grant()
        assert not set(fresh) & self.begun
        assert len(set(fresh)) == len(fresh)
        self.working = {table for table in self.tables if self.turns.is_working(table)}
        self.begun |= set(fresh)
        assert self.working <= self.begun
        self.waiting -= self.working
        may = self._may_have_turn()
        for table in list(self.read):
            if table not in may:
                del self.read[table]
        for table in may - self.read.keys():
            self.read[table] = defaultdict(int)
            owed = self.deficit[table]
            self.rounds[table] = next(number for number in range(1, 10_000) if number * self.quantum > owed)

    def _working_one(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.working)))

    @precondition(lambda self: self.working)
    @rule(data=st.data(), records=st.integers(1, MOST_RECORDS))
    def wave(self, data: st.DataObject, records: int) -> None:
        table = self._working_one(data)
        for found in self.read.values():
            found[table] += records
        self.turns.charge(table, records)
        if not self.turns.is_working(table):
            self.waiting.add(table)
            self.deficit[table] = -self.turns._credit[table]
        self._grant()

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """All batches of a wave fail, and the table waits for a retry."""
        table = self._working_one(data)
        before = self.turns._credit[table]
        others = self._may_have_turn()
        self.turns.charge(table, 0)
        assert self.turns.is_working(table) is not bool(others)
        self.turns.sleep(table)
        assert self.turns._credit[table] == before
        self.deficit[table] = -before
        self.asleep.add(table)
        self._grant()
        assert table not in self.working

    @precondition(lambda self: self.waiting & self.begun)
    @rule(data=st.data())
    def sleep_instead_of_waiting(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(sorted(self.waiting & self.begun)))
        self.turns.sleep(table)
        self.waiting.remove(table)
        self.asleep.add(table)
        self._grant()
        assert table not in self.working

    @precondition(lambda self: self.asleep)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(sorted(self.asleep)))
        self.turns.ask(table)
        self.turns.ask(table)
        self.asleep.remove(table)
        self.waiting.add(table)
        self._grant()

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(sorted(self.begun)))
        self.turns.end(table)
        for names in (self.begun, self.working, self.waiting, self.asleep):
            names.discard(table)
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
            assert len(self.begun) <= self.limits[1]

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
    def others_count_while_they_work_or_wait(self) -> None:
        if hasattr(self, "turns"):
            for table in self.tables:
                assert self.turns.is_alone(table) == (not (self.working | self.waiting) - {table})


def test_no_table_starves() -> None:
    run_state_machine_as_test(Turns, settings=settings(max_examples=60, stateful_step_count=40))


@given(st.lists(st.integers(1, MOST_RECORDS), min_size=1, max_size=200), st.integers(1, 300))
def test_two_tables_that_both_have_work_read_about_as_many_records(waves: list[int], quantum: int) -> None:
    turns = DeficitRoundRobin(["a", "b"], quantum, at_once=1, most_begun=2)
    read = {"a": 0, "b": 0}
    for records in waves:
        turns.grant()
        [table] = [name for name in read if turns.is_working(name)]
        read[table] += records
        turns.charge(table, records)

        assert abs(read["a"] - read["b"]) <= quantum + MOST_RECORDS


@given(st.permutations([*(f"large {number}" for number in range(4)), *(f"small {number}" for number in range(20))]))
def test_small_tables_do_not_wait_for_four_large_ones(order: list[str]) -> None:
    turns = DeficitRoundRobin(order, 1000, at_once=4, most_begun=8)
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
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_begun=2)
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
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_begun=2)
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
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_begun=2)
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
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_begun=2)
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
    turns = DeficitRoundRobin("abcd", 100, at_once=1, most_begun=2)
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


def test_a_table_that_sleeps_does_not_count_as_another_one_that_works() -> None:
    turns = DeficitRoundRobin(["a", "b"], 100, at_once=1, most_begun=2)
    turns.grant()
    assert not turns.is_alone("a")
    turns.charge("a", 100)
    turns.grant()
    assert not turns.is_alone("b")
    turns.sleep("a")

    assert turns.is_alone("b")
