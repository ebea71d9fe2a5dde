"""Tests of the past states of partitions, for a rewind to a time."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver


def position(driver: LedgerDriver, **ago: float) -> int:
    """Return the checkpoint of ``t`` at this long after the start."""
    return driver.ledger.positions_at("orders", NOW + timedelta(**ago))["t"]


def marks(driver: LedgerDriver) -> int:
    """Return the number of snapshots."""
    with driver.ledger._engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(tables.partition_snapshot)).scalar_one()


def test_the_checkpoint_at_a_time_is_the_newest_up_to_then(driver: LedgerDriver) -> None:
    driver.wait(hours=1).deliver(10)
    driver.wait(hours=1).deliver(20)
    driver.wait(hours=1).deliver(30)
    assert [position(driver, hours=hours) for hours in (0.5, 1, 1.5, 2.9, 3, 50)] == [0, 10, 10, 20, 30, 30]


def test_before_it_first_started_it_stands_at_its_first_base(driver: LedgerDriver) -> None:
    driver.deliver(10)
    assert position(driver, days=-100) == 0


def test_within_a_minute_a_look_back_may_name_an_earlier_position_and_never_a_later(driver: LedgerDriver) -> None:
    for end in range(1, 60):
        driver.wait(seconds=10).deliver(end)
    assert marks(driver) <= 12
    for end in range(1, 60):
        assert end - 6 <= position(driver, seconds=10 * end) <= end


def test_where_a_busy_time_ended_is_known_exactly(driver: LedgerDriver) -> None:
    for end in range(1, 8):
        driver.wait(seconds=5).deliver(end)
    driver.wait(hours=8).deliver(100)
    assert position(driver, hours=4) == 7


def test_a_rewind_does_not_change_the_past(driver: LedgerDriver) -> None:
    driver.deliver(10, 20)
    driver.wait(hours=1).action(ActionKind.REWIND, positions={"t": 5})
    driver.wait(hours=1).deliver(8)
    assert [position(driver, hours=hours) for hours in (0.5, 1.5, 3)] == [20, 5, 8]


def test_a_rewind_goes_to_a_time(driver: LedgerDriver) -> None:
    driver.deliver(10)
    driver.wait(hours=1).deliver(20, 30)
    driver.action(ActionKind.REWIND, positions=driver.ledger.positions_at("orders", NOW + timedelta(minutes=30)))
    assert (driver.partition().generation, driver.partition().committed) == (2, 10)


def test_side_partitions_have_no_place_in_it(driver: LedgerDriver) -> None:
    driver.deliver(10)
    driver.action(ActionKind.REPLAY, ranges=[("t", Range(0, 5))])
    assert list(driver.ledger.positions_at("orders", NOW)) == ["t"]


def test_an_unknown_pipeline_is_said_to_be_unknown(driver: LedgerDriver) -> None:
    with pytest.raises(ConfigError, match="Did you mean orders"):
        driver.ledger.positions_at("order", NOW)
