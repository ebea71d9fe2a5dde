"""Rules that the ledger applies outside of the core: which outcomes count, who may act, and what a lock protects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.ledger.ledger_driver import NOW, TTL, LedgerDriver, delivered, failed
from tests.services.ledgers import new_ledger_database
from tests.services.postgres import PostgresServer


def test_an_outcome_of_an_older_epochs_attempt_is_ignored(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.again()

    driver.settle(failed(batch))

    assert driver.states() == {0: BatchState.IN_FLIGHT}
    assert [event["seq"] for event in driver.events("outcome_ignored")] == [0]


def test_an_action_waits_for_the_run_that_holds_the_lease(driver: LedgerDriver) -> None:
    (batch,) = driver.plan(10)

    result = driver.ledger.action("orders", Action(ActionKind.HOLD, (batch.key,)), actor="ann", reason="looks odd")

    assert (result.applied, driver.states()) == (False, {0: BatchState.PLANNED})
    (applied,) = driver.ledger.apply_stored_actions(driver.lease, now=NOW)
    assert (applied.applied, driver.states()) == (True, {0: BatchState.HELD})


def test_a_rewind_waits_for_a_fence(driver: LedgerDriver) -> None:
    driver.settle(*map(delivered, driver.send(10)))
    driver.ledger.action("orders", Action(ActionKind.REWIND, positions={"t": 0}), actor="ann", reason="bad transform")

    assert driver.ledger.apply_stored_actions(driver.lease, now=NOW) == []
    assert (driver.partition().generation, driver.partition().committed) == (1, 10)

    driver.again().reconcile()
    driver.ledger.apply_stored_actions(driver.lease, now=NOW, behind_fence=True)
    assert (driver.partition().generation, driver.partition().committed) == (2, 0)


def test_a_stop_that_no_longer_fits_is_refused_when_its_turn_comes(driver: LedgerDriver) -> None:
    driver.send(10)
    driver.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann", reason="upgrade")
    driver.ledger.action("orders", Action(ActionKind.STOP), actor="ann", reason="upgrade")

    drained, stopped = driver.ledger.apply_stored_actions(driver.lease, now=NOW)

    assert (drained.applied, stopped.applied) == (True, False)
    assert stopped.refusal is not None
    assert "in flight" in stopped.refusal
    assert driver.partition().phase is Phase.DRAINING


def test_receipts_on_both_sides_of_a_gap_stay_two(driver: LedgerDriver) -> None:
    """Sent at most once, the checkpoint has passed all three; nobody has heard of the one in the middle."""
    first, _, last = driver.begin(driver.plan(10, 20, 30), at_most_once=True)

    driver.settle(delivered(first), delivered(last))

    assert driver.partition().committed == 30
    assert driver.receipts() == [(0, 10, 1, 10), (20, 30, 1, 10)]


def test_a_takeover_waits_for_a_command_in_progress(postgres_server: PostgresServer) -> None:
    dsn = new_ledger_database(postgres_server)
    with Ledger.open(dsn) as first, Ledger.open(dsn) as second:
        driver = LedgerDriver(first).start("t")
        with ThreadPoolExecutor(1) as pool:
            with first._command(driver.lease) as work:
                taken = pool.submit(second.acquire, "orders", "second", TTL, is_dead=lambda _: True)
                with pytest.raises(TimeoutError):
                    taken.result(timeout=0.5)
                work.write("slow", {})
            assert taken.result(timeout=10).epoch == driver.lease.epoch + 1
        assert [event["kind"] for event in second.events("orders")][-2:] == ["slow", "lease_taken_over"]
