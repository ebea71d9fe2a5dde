"""The crash test's plan kills each kind of process often enough, and at many points of a run."""

from __future__ import annotations

from collections import Counter

from tests.chaos.process_kills.kill_times import Kind, plan


def test_every_kind_is_killed_at_least_four_times_in_twenty_moments() -> None:
    kinds = Counter(kill_time.kind for kill_time in plan(20, 100))
    assert all(kinds[kind] >= 4 for kind in Kind)


def test_no_moment_is_planned_twice() -> None:
    moments = plan(20, 100)
    assert len({(kill_time.kind, kill_time.when, kill_time.amount) for kill_time in moments}) == 20


def test_further_moments_are_drawn_the_same_way_again() -> None:
    assert plan(40, 100, seed=7) == plan(40, 100, seed=7)
    assert all(1 <= kill_time.amount < 100 for kill_time in plan(40, 100)[20:])
