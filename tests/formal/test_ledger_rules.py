"""Rules of the ledger that are not in the core: whose outcomes count, who may act when, what a lock protects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.integration.ledger.ledger_driver import NOW, TTL, Acts, delivered, failed


def test_an_outcome_of_an_older_epochs_attempt_is_ignored(acts: Acts) -> None:
    (batch,) = acts.send(10)
    acts.again()

    acts.settle(failed(batch))

    assert acts.states() == {0: BatchState.IN_FLIGHT}
    assert [event["seq"] for event in acts.events("outcome_ignored")] == [0]


def test_an_action_waits_for_the_run_that_holds_the_lease(acts: Acts) -> None:
    (batch,) = acts.plan(10)

    result = acts.ledger.action("orders", Action(ActionKind.HOLD, (batch.key,)), actor="ann", reason="looks odd")

    assert (result.applied, acts.states()) == (False, {0: BatchState.PLANNED})
    (applied,) = acts.ledger.apply_stored_actions(acts.lease, now=NOW)
    assert (applied.applied, acts.states()) == (True, {0: BatchState.HELD})


def test_a_rewind_waits_for_a_fence(acts: Acts) -> None:
    acts.settle(*map(delivered, acts.send(10)))
    acts.ledger.action("orders", Action(ActionKind.REWIND, positions={"t": 0}), actor="ann", reason="bad transform")

    assert acts.ledger.apply_stored_actions(acts.lease, now=NOW) == []
    assert (acts.partition().generation, acts.partition().committed) == (1, 10)

    acts.again().reconcile()
    acts.ledger.apply_stored_actions(acts.lease, now=NOW, behind_fence=True)
    assert (acts.partition().generation, acts.partition().committed) == (2, 0)


def test_a_stop_that_no_longer_fits_is_refused_when_its_turn_comes(acts: Acts) -> None:
    acts.send(10)
    acts.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann", reason="upgrade")
    acts.ledger.action("orders", Action(ActionKind.STOP), actor="ann", reason="upgrade")

    drained, stopped = acts.ledger.apply_stored_actions(acts.lease, now=NOW)

    assert (drained.applied, stopped.applied) == (True, False)
    assert stopped.refusal is not None
    assert "in flight" in stopped.refusal
    assert acts.partition().phase is Phase.DRAINING


def test_receipts_on_both_sides_of_a_gap_stay_two(acts: Acts) -> None:
    """Sent at most once, the checkpoint has passed all three; nobody has heard of the one in the middle."""
    first, _, last = acts.begin(acts.plan(10, 20, 30), at_most_once=True)

    acts.settle(delivered(first), delivered(last))

    assert acts.partition().committed == 30
    assert acts.receipts() == [(0, 10, 1, 10), (20, 30, 1, 10)]


def test_a_takeover_waits_for_a_command_in_progress(postgres_database: str) -> None:
    migrate.upgrade(postgres_database)
    with Ledger.open(postgres_database) as first, Ledger.open(postgres_database) as second:
        acts = Acts(first).start("t")
        with ThreadPoolExecutor(1) as pool:
            with first._command(acts.lease) as work:
                taken = pool.submit(second.acquire, "orders", "second", TTL, is_dead=lambda _: True)
                with pytest.raises(TimeoutError):
                    taken.result(timeout=0.5)
                work.write("slow", {})
            assert taken.result(timeout=10).epoch == acts.lease.epoch + 1
        assert [event["kind"] for event in second.events("orders")][-2:] == ["slow", "lease_taken_over"]
