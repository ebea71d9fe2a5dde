"""A watcher fires if the lag is large enough or a record has waited long enough, but not for lag that a run left."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.lag import PartitionLag
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.triggers.start_on_lag import CkptWorkTrigger, FiringRule, LagReading, TriggerReason


def seen(lag: int, epoch: int = 1, *, running: bool = False) -> LagReading:
    return LagReading({"p": PartitionLag(0, lag)}, epoch, running)


def watch() -> FiringRule:
    return FiringRule(at_least=100, longest_wait=60)


def test_enough_to_do_fires_at_once() -> None:
    assert watch().due(seen(100), 0) is TriggerReason.ENOUGH


def test_less_waits_for_its_longest_wait_from_when_it_was_first_seen() -> None:
    watching = watch()
    assert [watching.due(seen(lag), now) for now, lag in ((0, 1), (30, 2), (59, 3), (60, 3))] == [
        None,
        None,
        None,
        TriggerReason.WAITED,
    ]


def test_nothing_to_do_never_fires_and_begins_the_wait_anew() -> None:
    watching = watch()
    assert [watching.due(seen(lag), now) for now, lag in ((0, 1), (50, 0), (70, 1), (129, 1), (130, 1))] == [
        None,
        None,
        None,
        None,
        TriggerReason.WAITED,
    ]


def test_it_does_not_fire_while_a_run_is_at_work_or_has_not_begun_yet() -> None:
    watching = watch()
    assert watching.due(seen(500), 0) is TriggerReason.ENOUGH
    assert watching.due(seen(500), 1) is None
    assert watching.due(seen(300, 2, running=True), 2) is None
    assert watching.due(seen(0, 2), 3) is None
    assert watching.due(seen(100, 2), 4) is TriggerReason.ENOUGH


def test_it_waits_for_a_run_that_somebody_else_has_begun() -> None:
    watching = watch()
    assert watching.due(seen(500, running=True), 0) is None
    assert watching.due(seen(500), 1) is TriggerReason.ENOUGH


def test_an_event_that_no_run_answers_is_given_once_more() -> None:
    watching = watch()
    assert watching.due(seen(500), 0) is TriggerReason.ENOUGH
    assert watching.due(seen(500), 59) is None
    assert watching.due(seen(500), 60) is TriggerReason.ENOUGH


def test_what_a_run_leaves_is_not_enough_again_but_does_not_wait_for_ever() -> None:
    watching = watch()
    assert watching.due(seen(500), 0) is TriggerReason.ENOUGH
    assert watching.due(seen(400, 2), 10) is None
    assert watching.due(seen(499, 2), 20) is None
    assert watching.due(seen(500, 2), 30) is TriggerReason.ENOUGH
    assert watching.due(seen(400, 3), 40) is None
    assert watching.due(seen(400, 3), 100) is TriggerReason.WAITED


def test_before_the_first_batch_only_growth_since_the_last_run_counts() -> None:
    """The lag of a partition that has not begun is not known, but its growth is."""

    def reading(end: int, epoch: int) -> LagReading:
        return LagReading({"p": PartitionLag(START, end)}, epoch, running=False)

    watching = watch()
    assert watching.due(reading(START, 0), 0) is None
    assert watching.due(reading(500, 0), 1) is TriggerReason.ENOUGH
    assert watching.due(reading(500, 1), 2) is None
    assert watching.due(reading(599, 1), 3) is None
    assert watching.due(reading(600, 1), 4) is TriggerReason.ENOUGH


def test_it_pauses_between_looks() -> None:
    with pytest.raises(ConfigError, match="every is 0; it must be longer than 0"):
        CkptWorkTrigger(pipeline="orders", every=0)
