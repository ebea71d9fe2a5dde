"""A campaign passes only if it injected as many faults as requested, in all places, and nothing was wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.crash_points.campaign import Plan, shortcomings

PASSED: dict[str, Any] = {
    "crash_points": 30,
    "lost": 0,
    "doubled_on_transactional": 0,
    "by_pair": {"kafka-kafka": {"crash_points": 30}},
    "driver_kills": 2,
    "faults": {},
    "points_asked": 30,
    "driver_kills_asked": 2,
}


def test_a_campaign_without_fault_passes() -> None:
    assert shortcomings(PASSED) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lost": 1}, "1 lost"),
        ({"doubled_on_transactional": 2}, "2 doubled_on_transactional"),
        ({"faults": {"kafka-kafka-3": ["out of order", "too late"]}}, "kafka-kafka-3: out of order; too late"),
        ({"crash_points": 29}, "29 crash_points, and 30 were asked for"),
        ({"driver_kills": 1}, "1 driver_kills, and 2 were asked for"),
        ({"by_pair": {"files-delta": {"crash_points": 0}}}, "files-delta was not struck"),
    ],
)
def test_one_that_falls_short_says_why(changed: dict[str, Any], said: str) -> None:
    assert shortcomings({**PASSED, **changed}) == [said]


def test_a_thousand_points_kill_at_least_sixty_drivers() -> None:
    assert Plan(1000).driver_kills >= 60
    assert Plan(1000, drivers=False).driver_kills == 0
