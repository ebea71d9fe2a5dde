"""Actions that wait for the holder of the lease keep their order."""

from __future__ import annotations

from airflow_provider_ckpt.core.action import Action, ActionKind
from tests.integration.ledger.ledger_driver import LedgerDriver


def test_an_act_does_not_overtake_one_that_waits(driver: LedgerDriver) -> None:
    driver.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann", reason="maintenance")
    driver.ledger.release(driver.lease)

    result = driver.ledger.action("orders", Action(ActionKind.RESUME), actor="ben", reason="over")

    assert (result.before["phase"], result.after["phase"]) == ("draining", "running")
    assert driver.ledger.stored_actions("orders") == []


def test_a_stop_that_a_dead_run_stands_in_the_way_of_goes_on_waiting(driver: LedgerDriver) -> None:
    [batch] = driver.plan(10)
    driver.begin([batch])
    for kind in (ActionKind.DRAIN, ActionKind.STOP):
        driver.ledger.action("orders", Action(kind), actor="ann", reason="maintenance")
    driver.ledger.release(driver.lease)

    driver.ledger.action("orders", Action(ActionKind.HOLD, (batch.key,)), actor="ben", reason="look at it first")

    assert [intent.action.kind for intent in driver.ledger.stored_actions("orders")] == [ActionKind.STOP]
